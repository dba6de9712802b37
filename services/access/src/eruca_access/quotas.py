"""Quotas in use: what each principal has used of its limits, in this process.

A rate is a bucket that holds one second's worth. A request is admitted while no bucket is in debt,
and takes its cost then, even if that leads into debt: a body may be larger than a second's worth.
What is known only afterwards, such as the bytes of an answer, is added to the debt. So no answer is
ever cut for a quota, and on average no principal gets more than its rate.

A bucket is one number: the time at which it is full again (the *generic cell rate algorithm*). It
is in debt while that time is more than a second away. The latest such moment of all buckets is
``blocked_until``, so admitting costs one comparison.

Source: ITU-T I.371, annex A.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from heapq import nlargest
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from eruca.contract.access import QUOTA_NAMES
from eruca.contract.errors import QuotaExceededError
from eruca.core.access.quotas import Quotas
from eruca_chassis.admission.gate import Connection

BURST_SECONDS: Final = 1.0  # that a bucket holds; shorter than a client notices
RETRY_SECONDS: Final = 1.0  # for limits that are no rates: about the time of a request
METERS_MAX: Final = 10_000  # principals whose use is remembered
SHOWN_MAX: Final = 100  # principals in the metrics; those with the most refusals

_RATES: Final = ("requests_per_second", "bytes_in_per_second", "bytes_out_per_second")


class Meter:
    """The use of one principal, and its limits.

    Attributes:
        blocked_until: The monotonic time until which no request is admitted.
        connections: Its open connections, if their number is limited.
    """

    __slots__ = (
        "_connections_max",
        "_full_at",
        "_held",
        "_limits",
        "_seconds_each",
        "_under_way_max",
        "blocked_until",
        "bytes_in",
        "bytes_out",
        "connections",
        "principal",
        "refusals",
        "requests",
        "share",
        "under_way",
    )  # fmt: skip

    def __init__(self, principal: str, limits: Mapping[str, float]) -> None:
        self.principal = principal
        self.blocked_until = 0.0
        self.requests = self.bytes_in = self.bytes_out = self.under_way = 0  # since the start
        self.refusals: Counter[str] = Counter()  # by the limit's name
        self.connections: set[Connection] = set()
        self._full_at = [0.0, 0.0, 0.0]  # of the buckets, as in _RATES
        self._held: dict[str, int] = {}  # of each budget of bytes in flight, by its name
        self.take_limits(limits)

    def take_limits(self, limits: Mapping[str, float]) -> None:
        """Take new limits; what was used before stays used."""
        self._limits = limits
        self._seconds_each = [
            1 / limits[name] if name in limits else 0.0 for name in _RATES
        ]  # of a request, a byte; 0: there is no limit
        self._under_way_max = limits.get("requests_under_way_max")
        self._connections_max = limits.get("connections_max")
        self.share = limits.get("in_flight_share")
        self._full_at = [
            at if each else 0.0 for at, each in zip(self._full_at, self._seconds_each, strict=True)
        ]
        self.blocked_until = max(self._full_at) - BURST_SECONDS

    def begin(self, now: float, body_size: int, connection: Connection | None = None) -> None:
        """Admit a request with a body of *body_size* bytes, as far as they are announced.

        Args:
            now: The monotonic time.
            body_size: 0: unknown, or there is none.
            connection: Its connection; None: unknown.

        Raises:
            QuotaExceededError: A limit is reached; nothing was taken.
        """
        if now < self.blocked_until:
            raise self._rate_refusal(now)
        if self._under_way_max is not None and self.under_way >= self._under_way_max:
            raise self._refusal("requests_under_way_max", RETRY_SECONDS)
        if self._connections_max is not None and connection is not None:
            self._count(connection, self._connections_max)
        self.under_way += 1
        self.requests += 1
        self.bytes_in += body_size
        self._spend(0, 1, now)
        self._spend(1, body_size, now)

    def received(self, now: float, size: int) -> None:
        """Add bytes of a body whose size was not announced."""
        self.bytes_in += size
        self._spend(1, size, now)

    def sent(self, now: float, size: int) -> None:
        """Add bytes of an answer."""
        self.bytes_out += size
        self._spend(2, size, now)

    def end(self) -> None:
        """End a request that :meth:`begin` has admitted."""
        self.under_way -= 1
        assert self.under_way >= 0

    def lost(self, connection: Connection) -> None:
        """Forget a connection, which is closed."""
        self.connections.discard(connection)

    def hold(self, budget: str, maximum: int, amount: int) -> None:
        """Take *amount* of the share of a budget that has this maximum.

        Raises:
            QuotaExceededError: It does not fit; nothing was taken.
        """
        held = self._held.get(budget, 0) + amount
        if self.share is not None and held > self.share * maximum:
            raise self._refusal("in_flight_share", RETRY_SECONDS)
        self._held[budget] = held

    def give(self, budget: str, amount: int) -> None:
        """Give back *amount* of a budget."""
        self._held[budget] -= amount
        assert self._held[budget] >= 0

    @property
    def is_idle(self) -> bool:
        """True if it has nothing under way."""
        return not self.under_way and not self.connections

    def _count(self, connection: Connection, maximum: float) -> None:
        if connection in self.connections:
            return
        if len(self.connections) >= maximum:
            raise self._refusal("connections_max", RETRY_SECONDS)
        self.connections.add(connection)
        connection.counted_by(self)

    def _spend(self, bucket: int, amount: int, now: float) -> None:
        each = self._seconds_each[bucket]
        if each and amount:
            at = max(self._full_at[bucket], now) + each * amount
            self._full_at[bucket] = at
            self.blocked_until = max(self.blocked_until, at - BURST_SECONDS)

    def _rate_refusal(self, now: float) -> QuotaExceededError:
        latest = max(range(len(_RATES)), key=self._full_at.__getitem__)
        return self._refusal(_RATES[latest], self.blocked_until - now)

    def _refusal(self, name: str, seconds: float) -> QuotaExceededError:
        self.refusals[name] += 1
        limit = self._limits[name]
        return QuotaExceededError(
            f"{self.principal} has used up its quota at this service: {name} is {limit:g}",
            quota=name,
            limit=limit,
            retry_after_seconds=seconds,
        )


class QuotaBook:
    """The meters of all principals that have a quota."""

    def __init__(self) -> None:
        self.version = 0  # grows if a meter that may be in use is forgotten
        self._quotas: Quotas | None = None
        self._meters: dict[str, Meter] = {}
        self._roles: dict[str, tuple[str, ...]] = {}

    def follow(self, quotas: Quotas) -> None:
        """Use other quotas from now on; what principals have used stays used."""
        self._quotas = quotas
        for principal, meter in list(self._meters.items()):
            limits = quotas.limits_of(principal, self._roles[principal])
            meter.take_limits(limits)
            if not limits and meter.is_idle:
                del self._meters[principal], self._roles[principal]

    def meter_of(self, principal: str, roles: tuple[str, ...] = ()) -> Meter | None:
        """Return the meter of a principal; None: it has no quota."""
        if self._quotas is None:
            return None
        limits = self._quotas.limits_of(principal, roles)
        if not limits:
            return None
        meter = self._meters.get(principal)
        if meter is None:
            if len(self._meters) >= METERS_MAX:
                self._forget_idle()
            meter = self._meters[principal] = Meter(principal, limits)
        elif self._roles[principal] != roles:
            meter.take_limits(limits)
        self._roles[principal] = roles
        return meter

    def meters(self) -> Iterator[Meter]:
        """Yield the meters with the most refusals, as many as metrics show."""
        yield from nlargest(SHOWN_MAX, self._meters.values(), key=lambda m: m.refusals.total())

    def __len__(self) -> int:
        """Return the number of principals whose use is remembered."""
        return len(self._meters)

    def _forget_idle(self) -> None:
        self._meters = {name: m for name, m in self._meters.items() if not m.is_idle}
        self._roles = {name: roles for name, roles in self._roles.items() if name in self._meters}
        self.version += 1


class QuotaMetrics(Collector):
    """The metrics of quotas: for the principals with the most refusals, and the others' number."""

    def __init__(self, book: QuotaBook) -> None:
        self._book = book

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, for Prometheus."""
        requests = CounterMetricFamily(
            "eruca_quota_requests", "Requests admitted within a quota", labels=["principal"]
        )
        octets = CounterMetricFamily(
            "eruca_quota_bytes",
            "Bytes of bodies of principals with a quota",
            labels=["principal", "direction"],
        )
        refusals = CounterMetricFamily(
            "eruca_quota_refusals",
            "Requests refused for a quota, by the limit that was reached",
            labels=["principal", "quota"],
        )
        shown = list(self._book.meters())
        for meter in shown:
            requests.add_metric([meter.principal], meter.requests)
            octets.add_metric([meter.principal, "in"], meter.bytes_in)
            octets.add_metric([meter.principal, "out"], meter.bytes_out)
            for name in QUOTA_NAMES:
                if count := meter.refusals[name]:
                    refusals.add_metric([meter.principal, name], count)
        yield requests
        yield octets
        yield refusals
        yield GaugeMetricFamily(
            "eruca_quota_principals_left_out",
            "Principals with a quota that the metrics do not show",
            value=len(self._book) - len(shown),
        )
