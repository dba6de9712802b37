"""Latency fault tolerance: which brokers a producer avoids, and for how long.

After each attempt the producer reports its latency and outcome. A slow or failed broker is
*isolated* for a time that a table gives for the latency. After that time the broker is *on trial*:
one message is sent to it as a probe. Its result decides whether the broker is healthy or isolated
again. No mark lasts for ever: an isolation ends by itself, a probe without a result expires, and so
does the mark of an unreachable broker.

There is one table per producer, keyed by broker name. It contains only reported brokers. So it is
as large as the cluster: a broker keeps its name when it restarts or moves. All times are ms of one
monotonic clock, given by the caller.

Source: RocketMQ 5.3, ``LatencyFaultToleranceImpl``, ``MQFaultStrategy``; release 4.7 for the older
table. The trial and the expiry of the unreachable mark are ours. In RocketMQ all senders use a
broker at once when its isolation ends, and a broker that answered with an error may stay marked for
ever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

from eruca.contract.errors import ValidationError

PROBE_MS_MAX: Final = 3_000  # RocketMQ's sendMsgTimeout: after it, a probe has no result any more


@dataclass(frozen=True, slots=True)
class LatencyProfile:
    """The time to avoid a broker, by the latency of the last attempt.

    The two tables belong together: an attempt of at least ``latency_max_ms[i]`` ms isolates for
    ``not_available_ms[i]`` ms; below the first bound nothing happens.
    """

    latency_max_ms: tuple[int, ...]  # ascending
    not_available_ms: tuple[int, ...]
    failure_latency_ms: int  # latency of a failed attempt, however fast it failed
    never_shortens: bool  # whether a later, better attempt does not shorten an isolation
    # how long a broker counts as unreachable; None: until it is reached
    unreachable_ms_max: int | None

    def __post_init__(self) -> None:
        if len(self.latency_max_ms) != len(self.not_available_ms):
            raise ValueError("a profile needs one duration for each latency bound")
        if sorted(set(self.latency_max_ms)) != list(self.latency_max_ms):
            raise ValueError("a profile's latency bounds must ascend")

    def isolation_ms(self, latency_ms: float, *, failed: bool) -> int:
        """Return how long an attempt isolates its broker; 0: not at all."""
        counted = self.failure_latency_ms if failed else latency_ms
        for bound, duration in zip(
            reversed(self.latency_max_ms), reversed(self.not_available_ms), strict=True
        ):
            if counted >= bound:
                return duration
        return 0


CURRENT: Final = LatencyProfile(
    latency_max_ms=(50, 100, 550, 1_800, 3_000, 5_000, 15_000),
    not_available_ms=(0, 0, 2_000, 5_000, 6_000, 10_000, 30_000),
    failure_latency_ms=10_000,
    never_shortens=True,
    unreachable_ms_max=30_000,  # as the longest isolation
)


class Condition(StrEnum):
    """The condition of a broker, as seen by a producer."""

    HEALTHY = "healthy"
    ISOLATED = "isolated"  # avoided until its time ends
    ON_TRIAL = "on_trial"  # its time has ended; a probe decides


@dataclass(frozen=True, slots=True)
class FaultItem:
    """A producer's record of one broker."""

    broker_name: str
    latency_ms: float  # of the last attempt
    available_from_ms: float  # isolated until then
    unreachable_since_ms: float | None = None
    is_on_trial: bool = False  # it was isolated, and no attempt has succeeded since
    probe_until_ms: float | None = None  # a probe is under way; after this time another may follow


@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """A broker's health at one moment, for people."""

    broker_name: str
    condition: Condition
    is_reachable: bool
    latency_ms: float  # of the last attempt
    available_in_ms: float  # 0 unless isolated


class RandomSource(Protocol):
    """A source of random numbers, such as :class:`random.Random`."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 up to, not including, *stop*."""
        ...


class FaultTable:
    """The brokers of one producer, by the results of its own attempts. Not thread-safe."""

    def __init__(self, profile: LatencyProfile = CURRENT) -> None:
        self.profile = profile
        self._items: dict[str, FaultItem] = {}

    def update(
        self,
        broker_name: str,
        latency_ms: float,
        now_ms: float,
        *,
        failed: bool = False,
        reachable: bool = True,
    ) -> None:
        """Record the result of one attempt.

        Args:
            broker_name: The broker.
            latency_ms: Duration of the attempt.
            now_ms: Its end.
            failed: Avoid the broker whatever the latency: the connection failed, or the error was
                the broker's fault.
            reachable: False if there was no answer at all.
        """
        old = self._items.get(broker_name)
        duration = self.profile.isolation_ms(latency_ms, failed=failed)
        available_from = now_ms + duration
        if old is not None and self.profile.never_shortens:
            available_from = max(available_from if duration else 0, old.available_from_ms)
        self._items[broker_name] = FaultItem(
            broker_name,
            latency_ms,
            available_from,
            unreachable_since_ms=None if reachable else now_ms,
            # A success during the isolation does not end it, so the trial follows nevertheless.
            is_on_trial=now_ms < available_from,
        )

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        """Tell whether the broker is not isolated now."""
        item = self._items.get(broker_name)
        return item is None or now_ms >= item.available_from_ms

    def is_reachable(self, broker_name: str, now_ms: float) -> bool:
        """Tell whether the last attempt reached the broker, or failed too long ago to count."""
        item = self._items.get(broker_name)
        return item is None or self._reaches(item, now_ms)

    def admits(self, broker_name: str, now_ms: float) -> bool:
        """Tell whether to send to the broker: it is neither isolated nor waiting for its probe."""
        item = self._items.get(broker_name)
        if item is None:
            return True
        is_probed = item.probe_until_ms is not None and now_ms < item.probe_until_ms
        return now_ms >= item.available_from_ms and not is_probed

    def begin_probe(self, broker_name: str, now_ms: float) -> bool:
        """Record that a message goes to an admitted broker; return whether it is the probe."""
        item = self._items.get(broker_name)
        if item is None or not item.is_on_trial:
            return False
        assert self.admits(broker_name, now_ms), "it is isolated, or its probe is under way"
        self._items[broker_name] = replace(item, probe_until_ms=now_ms + PROBE_MS_MAX)
        return True

    def remove(self, broker_name: str) -> None:
        """Drop a broker."""
        self._items.pop(broker_name, None)

    def items(self, now_ms: float) -> list[FaultItem]:
        """Return the records of all brokers, best first."""
        return sorted(self._items.values(), key=lambda item: fault_order(item, now_ms))

    def health(self, now_ms: float) -> tuple[BrokerHealth, ...]:
        """Return the health of every known broker, best first."""
        return tuple(
            BrokerHealth(
                item.broker_name,
                _condition(item, now_ms),
                self._reaches(item, now_ms),
                item.latency_ms,
                max(0, item.available_from_ms - now_ms),
            )
            for item in self.items(now_ms)
        )

    def _reaches(self, item: FaultItem, now_ms: float) -> bool:
        if item.unreachable_since_ms is None:
            return True
        longest = self.profile.unreachable_ms_max
        return longest is not None and now_ms - item.unreachable_since_ms >= longest


def fault_order(item: FaultItem, now_ms: float) -> tuple[bool, float, float]:
    """Return the sort key: available brokers first, then faster, then sooner available ones."""
    return now_ms < item.available_from_ms, item.latency_ms, item.available_from_ms


def _condition(item: FaultItem, now_ms: float) -> Condition:
    if now_ms < item.available_from_ms:
        return Condition.ISOLATED
    return Condition.ON_TRIAL if item.is_on_trial else Condition.HEALTHY


def fault_table(latency_fault: bool | LatencyProfile) -> FaultTable | None:  # noqa: FBT001
    """Return the fault table for a producer's setting; None if the tolerance is off.

    Raises:
        ValidationError: The setting is invalid, and would be taken for False.
    """
    if isinstance(latency_fault, LatencyProfile):
        return FaultTable(latency_fault)
    if not isinstance(latency_fault, bool):
        raise ValidationError(
            f"latency_fault: expected True, False or a LatencyProfile, found {latency_fault!r}"
        )
    return FaultTable() if latency_fault else None
