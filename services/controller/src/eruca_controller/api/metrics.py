"""The controller's own metrics. Those of the groups are read from the store at each scrape."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from eruca.contract.broker_groups import BrokerGroupView
from eruca.contract.errors import ArbiterUnavailableError
from eruca_controller.arbiter import Arbiter

GROUP_COUNT_MAX: Final = 1_000  # groups with samples of their own; the first ones by name
READ_SECONDS: Final = 2.0  # a scrape must not wait for a store that is out of reach

_PREFIX: Final = "eruca_controller_"


class ControllerMetrics(Collector):
    """The samples of one controller."""

    def __init__(self, arbiter: Arbiter) -> None:
        self._arbiter = arbiter
        self._groups: list[BrokerGroupView] | None = None  # None: the store is out of reach

    async def refresh(self) -> None:
        """Read the groups, before the samples are collected."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                self._groups = await self._arbiter.groups(after=None, count_max=GROUP_COUNT_MAX)
        except (ArbiterUnavailableError, TimeoutError):
            self._groups = None

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        groups = self._groups
        yield _gauge("store_up", "1 while the store answers", int(groups is not None))
        yield from self._of_requests()
        if groups is None:
            return  # unknown is no sample, and not the last one
        yield _gauge("groups", f"Broker groups, up to {GROUP_COUNT_MAX}", len(groups))
        for name, meaning, values in (
            ("group_epoch", "Epoch of the group", [one.epoch for one in groups]),
            ("group_in_sync", "Members of the in-sync set", [len(one.in_sync) for one in groups]),
            (
                "group_members",
                "Replicas that may join the in-sync set: all but learners",
                [sum(r.kind == "member" for r in one.replicas) for one in groups],
            ),
            (
                "group_min_in_sync",
                "Members below which the master refuses sends",
                [one.min_in_sync for one in groups],
            ),
        ):
            family = GaugeMetricFamily(_PREFIX + name, meaning, labels=["broker"])
            for group, value in zip(groups, values, strict=True):
                family.add_metric([group.broker_name], value)
            yield family

    def _of_requests(self) -> Iterator[Metric]:
        counts, held = self._arbiter.counts, self._arbiter.held
        changes = CounterMetricFamily(
            _PREFIX + "changes", "Changes made through this controller", labels=["kind"]
        )
        for kind, count in counts.changes.items():
            changes.add_metric([kind], count)
        yield changes
        yield _counter(
            "refused", "Changes of a version that was not the current one", counts.refused
        )
        yield _counter("repeated", "Changes that had been made already", counts.repeated)
        yield _counter("store_calls", "Reads and swaps of the store", counts.store_calls)
        yield _counter("store_failures", "Of these, without an answer", counts.store_failures)
        yield _counter("store_seconds", "Time for all of these", counts.store_seconds)
        yield _gauge("held_requests", "Requests held until a group changes", len(held))
        yield _gauge("held_requests_max", "Maximum of held requests", held.maximum)
        yield _counter(
            "woken", "Held requests that a change has ended", self._arbiter.watch.woken_count
        )


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(_PREFIX + name, meaning, value=value)


def _counter(name: str, meaning: str, value: float) -> Metric:
    return CounterMetricFamily(_PREFIX + name, meaning, value=value)
