"""Assemble exports: the parts that the handlers need, and their metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from eruca import AsyncClient
from eruca_chassis.app import ServiceApp
from eruca_query.exports.planner import FindMissing
from eruca_query.exports.slots import ExportSlots
from eruca_query.exports.topic_list import FindOthersTopics
from eruca_query.exports.workers.pool import ExportWorkers
from eruca_query.settings import QuerySettings


@dataclass(frozen=True, slots=True)
class Exports:
    """The parts that the handlers need."""

    client: AsyncClient
    slots: ExportSlots
    workers: ExportWorkers
    patience_seconds: float  # for a broker that is away during an export
    find_missing: FindMissing
    find_others: FindOthersTopics


@asynccontextmanager
async def exports_of(
    app: ServiceApp,
    client: AsyncClient,
    settings: QuerySettings,
    find_missing: FindMissing,
    find_others: FindOthersTopics,
) -> AsyncIterator[Exports]:
    """Provide exports while the service runs; cut them as soon as it is told to stop."""
    slots = ExportSlots(count_max=settings.export_count_max)
    workers = ExportWorkers(
        settings.export_worker_count, log_level=settings.log_level, log_style=settings.log_style
    )
    app.stop_hooks.append(slots.stop)
    try:
        with app.telling(_ExportMetrics(slots, workers)):
            yield Exports(
                client,
                slots,
                workers,
                settings.export_patience_seconds,
                find_missing,
                find_others,
            )
    finally:
        await workers.close()


class _ExportMetrics(Collector):
    """Reports exports to Prometheus."""

    def __init__(self, slots: ExportSlots, workers: ExportWorkers) -> None:
        self._slots = slots
        self._workers = workers

    def collect(self) -> Iterable[Metric]:
        """Yield the current metrics."""
        slots = self._slots
        for name, meaning, value in (
            ("eruca_query_exports_running", "Exports that run now", slots.running),
            (
                "eruca_query_export_steps",
                "Steps in progress in the workers; if there are many, more workers would help",
                self._workers.step_count,
            ),
        ):
            yield GaugeMetricFamily(name, meaning, value=value)
        for name, meaning, value in (
            ("eruca_query_export_rows", "Messages that have been exported", slots.rows),
            ("eruca_query_export_bytes", "Bytes of exported messages", slots.bytes),
            (
                "eruca_query_exports_cut",
                "Exports that ended before their last row: the reader left, or a broker failed",
                slots.cut,
            ),
        ):
            yield CounterMetricFamily(name, meaning, value=value)
