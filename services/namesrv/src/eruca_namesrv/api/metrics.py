"""The name server's own metrics, read from plain attributes at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from eruca_namesrv.name_server import NameServer


class NamesrvMetrics(Collector):
    """The samples of one name server."""

    def __init__(self, name_server: NameServer) -> None:
        self._name_server = name_server

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        table, held = self._name_server.table, self._name_server.held
        for name, meaning, value in (
            ("eruca_namesrv_brokers", "Live brokers", table.broker_count),
            ("eruca_namesrv_topics", "Topics of live brokers", len(table.topics())),
            ("eruca_namesrv_held_requests", "Requests held until a change", len(held)),
        ):
            yield GaugeMetricFamily(name, meaning, value=value)
