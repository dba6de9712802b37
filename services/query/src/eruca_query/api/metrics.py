"""The service's own metrics, read from plain attributes when somebody scrapes.

What PostgreSQL knows is not asked for here: a scrape must not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from eruca_postgres.metrics import following_metrics
from eruca_query.service import QueryService

_PREFIX: Final = "eruca_query_"


class QueryMetrics(Collector):
    """Samples of one instance."""

    def __init__(self, service: QueryService) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        """Return nothing: what there is, ``collect`` says."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        yield from following_metrics(_PREFIX, self._service.shares)
        counts = self._service.counts
        for name, meaning, value in (
            ("rows", "Rows of messages that were written", counts.rows),
            ("records", "Records that were read off logs", counts.records),
            ("blocks", "Stretches of logs that were folded", counts.blocks),
            ("damaged", "Records that were found damaged, and are in no answer", counts.damaged),
            ("unreadable", "Control records that were not understood", counts.unreadable),
            ("rebuilt", "Times a read model made anew took over", counts.switches),
            ("dropped_chunks", "Partitions that were dropped", self._service.upkeep.dropped_count),
        ):
            yield CounterMetricFamily(_PREFIX + name, meaning, value=value)
