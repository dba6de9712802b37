"""The service's own metrics, read from plain attributes when somebody scrapes.

What PostgreSQL knows is not asked for here: a scrape must not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

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
        work = self._service.work()
        yield GaugeMetricFamily(
            _PREFIX + "brokers", "Brokers whose logs this instance follows", value=len(work)
        )
        behind = GaugeMetricFamily(
            _PREFIX + "behind_bytes",
            "Bytes of a broker's log that were not in the read model when it was read last",
            labels=["broker"],
        )
        faults = GaugeMetricFamily(
            _PREFIX + "fault", "1 while a broker's log cannot be followed", labels=["broker"]
        )
        for name, its in work.items():
            offset, end = its.projector.log_offset, its.projector.end_offset
            if offset is not None and end is not None:
                behind.add_metric([name], max(end - offset, 0))
            faults.add_metric([name], int(its.fault is not None))
        yield behind
        yield faults
        counts = self._service.counts
        for name, meaning, value in (
            ("rows", "Rows of messages that were written", counts.rows),
            ("records", "Records that were read off logs", counts.records),
            ("blocks", "Stretches of logs that were folded", counts.blocks),
            ("unreadable", "Control records that were not understood", counts.unreadable),
            ("rebuilt", "Times a read model made anew took over", counts.switches),
            ("dropped_chunks", "Partitions that were dropped", self._service.upkeep.dropped_count),
        ):
            yield CounterMetricFamily(_PREFIX + name, meaning, value=value)
