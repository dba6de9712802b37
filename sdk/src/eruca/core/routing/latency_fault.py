"""Latency fault tolerance: which brokers a producer avoids, and for how long.

After each attempt the producer reports how long it took and how it ended. A slow or failed broker
is *isolated* for a time that a table gives for the latency. When that time is over the broker is
*on trial*: one message is let through as a probe, and its result decides whether the broker is
healthy again or isolated anew. No mark lasts for ever: isolation ends by itself, a probe whose
result never comes expires, and so does the mark of a broker that could not be reached.

One table per producer, keyed by broker name; it holds nothing of brokers that were never reported.
So it is as large as the cluster: a broker keeps its name when it restarts or moves.
All times are ms of one monotonic clock, given by the caller.

Source: RocketMQ 5.3, ``LatencyFaultToleranceImpl``, ``MQFaultStrategy``; release 4.7 for the older
table. The trial and the end of the unreachable mark are ours: there every sender rushes to a broker
at the end of its isolation, and a broker that answered with an error may stay marked for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

from eruca.contract.errors import ValidationError

PROBE_MS_MAX: Final = 3_000  # RocketMQ's sendMsgTimeout: a probe has been answered by then or never


@dataclass(frozen=True, slots=True)
class LatencyProfile:
    """The time to avoid a broker, by the latency of the last attempt.

    The two tables are read together: an attempt of at least ``latency_max_ms[i]`` ms isolates for
    ``not_available_ms[i]`` ms; below the first bound nothing happens.
    """

    latency_max_ms: tuple[int, ...]  # ascending
    not_available_ms: tuple[int, ...]
    failure_latency_ms: int  # what a failed attempt counts as, however fast it failed
    never_shortens: bool  # whether a later, better attempt leaves a running isolation as it is
    unreachable_ms_max: int | None  # how long a broker counts as unreachable; None: until mended

    def __post_init__(self) -> None:
        if len(self.latency_max_ms) != len(self.not_available_ms):
            raise ValueError("a profile needs one duration for each latency bound")
        if sorted(set(self.latency_max_ms)) != list(self.latency_max_ms):
            raise ValueError("a profile's latency bounds must ascend")

    def isolation_ms(self, latency_ms: float, *, failed: bool) -> int:
        """Return for how long an attempt isolates its broker; 0 for not at all."""
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
SEED_4X: Final = LatencyProfile(
    latency_max_ms=(50, 100, 550, 1_000, 2_000, 3_000, 15_000),
    not_available_ms=(0, 0, 30_000, 60_000, 120_000, 180_000, 600_000),
    failure_latency_ms=30_000,
    never_shortens=False,
    unreachable_ms_max=600_000,
)


class Condition(StrEnum):
    """The condition of a broker, as seen by a producer."""

    HEALTHY = "healthy"
    ISOLATED = "isolated"  # avoided until its time is over
    ON_TRIAL = "on_trial"  # its time is over; a probe decides


@dataclass(frozen=True, slots=True)
class FaultItem:
    """A producer's record of one broker."""

    broker_name: str
    latency_ms: float  # of the last attempt
    available_from_ms: float  # isolated until then
    unreachable_since_ms: float | None = None
    is_on_trial: bool = False  # it has been isolated, and nothing has succeeded since
    probe_until_ms: float | None = None  # a probe is under way; by then another may follow


@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """A broker's standing at one moment, for people to look at."""

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
    """The brokers of one producer, as its own attempts have shown them. Not thread-safe."""

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
        """Take in the result of one attempt.

        Args:
            broker_name: Where the attempt went.
            latency_ms: How long it took.
            now_ms: When it ended.
            failed: The broker is to be avoided whatever the latency: the connection failed, or
                the answer was an error of the broker's and not of the request.
            reachable: False if nothing at all came back.
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
            # Good news within the isolation does not end it, and so not the trial after it either.
            is_on_trial=now_ms < available_from,
        )

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        """Tell whether the broker is not isolated now."""
        item = self._items.get(broker_name)
        return item is None or now_ms >= item.available_from_ms

    def is_reachable(self, broker_name: str, now_ms: float) -> bool:
        """Tell whether the last attempt got through, or failed too long ago to count."""
        item = self._items.get(broker_name)
        return item is None or self._reaches(item, now_ms)

    def admits(self, broker_name: str, now_ms: float) -> bool:
        """Tell whether the broker may be sent to: neither isolated nor waiting for its probe."""
        item = self._items.get(broker_name)
        if item is None:
            return True
        is_probed = item.probe_until_ms is not None and now_ms < item.probe_until_ms
        return now_ms >= item.available_from_ms and not is_probed

    def begin_probe(self, broker_name: str, now_ms: float) -> bool:
        """Note that a message goes to an admitted broker; tell whether it is the trial's probe."""
        item = self._items.get(broker_name)
        if item is None or not item.is_on_trial:
            return False
        assert self.admits(broker_name, now_ms), "it is isolated, or its probe is under way"
        self._items[broker_name] = replace(item, probe_until_ms=now_ms + PROBE_MS_MAX)
        return True

    def remove(self, broker_name: str) -> None:
        """Forget a broker."""
        self._items.pop(broker_name, None)

    def items(self, now_ms: float) -> list[FaultItem]:
        """Return what is known, best broker first."""
        return sorted(self._items.values(), key=lambda item: fault_order(item, now_ms))

    def health(self, now_ms: float) -> tuple[BrokerHealth, ...]:
        """Return how every known broker stands now, best first."""
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
    """Return what items are sorted by: the available first, then the faster, then the sooner."""
    return now_ms < item.available_from_ms, item.latency_ms, item.available_from_ms


def _condition(item: FaultItem, now_ms: float) -> Condition:
    if now_ms < item.available_from_ms:
        return Condition.ISOLATED
    return Condition.ON_TRIAL if item.is_on_trial else Condition.HEALTHY


def fault_table(latency_fault: bool | LatencyProfile) -> FaultTable | None:  # noqa: FBT001
    """Return the table of a producer that was told so; None for one that remembers nothing.

    Raises:
        ValidationError: It is neither, and would be taken for a no.
    """
    if isinstance(latency_fault, LatencyProfile):
        return FaultTable(latency_fault)
    if not isinstance(latency_fault, bool):
        raise ValidationError(
            f"latency_fault: {latency_fault!r} is neither True nor False, nor a LatencyProfile"
        )
    return FaultTable() if latency_fault else None
