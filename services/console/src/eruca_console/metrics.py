"""The console's metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from eruca_console.sessions.callers import Callers
from eruca_console.shell.live import LiveStreams


class ConsoleMetrics(Collector):
    """Sessions and live updates."""

    def __init__(self, callers: Callers, streams: LiveStreams) -> None:
        self._callers = callers
        self._streams = streams

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, for Prometheus."""
        yield GaugeMetricFamily(
            "eruca_console_sessions", "People who are logged in", value=self._callers.count
        )
        yield GaugeMetricFamily(
            "eruca_console_live_streams",
            "Open pages that are kept up to date",
            value=self._streams.count,
        )
