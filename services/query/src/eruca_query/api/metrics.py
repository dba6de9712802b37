"""The service's own metrics, read from plain attributes at each scrape.

PostgreSQL is not asked: a scrape must not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from eruca_postgres.broker_shares import BrokerShares
from eruca_postgres.metrics import following_metrics
from eruca_query.projection.broker_work import FollowedBroker
from eruca_query.projection.message_projection import ProjectionCounts
from eruca_query.projection.upkeep import Upkeep

_PREFIX: Final = "eruca_query_"


class QueryMetrics(Collector):
    """Samples of one instance."""

    def __init__(
        self, shares: BrokerShares[FollowedBroker], counts: ProjectionCounts, upkeep: Upkeep
    ) -> None:
        self._shares = shares
        self._counts = counts
        self._upkeep = upkeep

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        yield from following_metrics(_PREFIX, self._shares)
        counts = self._counts
        for name, meaning, value in (
            ("rows", "Rows of messages that were written", counts.rows),
            ("records", "Records that were read from logs", counts.records),
            ("blocks", "Blocks of logs that were applied", counts.blocks),
            ("damaged", "Damaged records, which are missing from all answers", counts.damaged),
            ("unreadable", "Control records that could not be decoded", counts.unreadable),
            ("rebuilt", "Times a rebuilt read model took over", counts.switches),
            ("dropped_chunks", "Partitions that were dropped", self._upkeep.dropped_count),
            ("indexed_chunks", "Partitions that were left bare", self._upkeep.indexed_count),
        ):
            yield CounterMetricFamily(_PREFIX + name, meaning, value=value)
