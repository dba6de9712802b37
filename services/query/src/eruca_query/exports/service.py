"""Exports, put together: what the handlers need, and how it is watched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from eruca import AsyncClient
from eruca_chassis.app import ServiceApp
from eruca_query.exports.slots import ExportSlots
from eruca_query.settings import QuerySettings


@dataclass(frozen=True, slots=True)
class Exports:
    """What the handlers need."""

    client: AsyncClient
    slots: ExportSlots
    patience_seconds: float  # with a broker that is away while its messages are being read


@contextmanager
def exports_of(app: ServiceApp, client: AsyncClient, settings: QuerySettings) -> Iterator[Exports]:
    """Provide exports while the service runs; they are cut as soon as it is told to stop."""
    slots = ExportSlots(
        count_max=settings.export_count_max, thread_count=settings.export_thread_count
    )
    app.stop_hooks.append(slots.stop)
    metrics = _ExportMetrics(slots)
    app.registry.register(metrics)
    try:
        yield Exports(client, slots, settings.export_patience_seconds)
    finally:
        app.registry.unregister(metrics)
        slots.close()


class _ExportMetrics(Collector):
    """Tells Prometheus what is being exported."""

    def __init__(self, slots: ExportSlots) -> None:
        self._slots = slots

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics as they are now."""
        slots = self._slots
        yield GaugeMetricFamily(
            "eruca_query_exports_running", "Exports that run now", value=slots.running
        )
        for name, meaning, value in (
            ("eruca_query_export_rows", "Messages that have been exported", slots.rows),
            ("eruca_query_export_bytes", "Bytes that they took", slots.bytes),
            (
                "eruca_query_exports_cut",
                "Exports that ended before their last row: the reader left, or a broker did",
                slots.cut,
            ),
        ):
            yield CounterMetricFamily(name, meaning, value=value)
