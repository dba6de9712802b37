"""The retry policy of sends: whether to retry, after what pause, and with what timeout.

All attempts of a send share one deadline. Every attempt except the last gets half of the remaining
time, so an attempt that hangs leaves time for the next. RocketMQ gives each attempt all of it, so
its retries help only against fast failures.

A broker that sent Retry-After is tried again only after that time; another broker is tried at once.
If all brokers have sent it, the one whose time ends first is next. After a refusal because of a
wrong route, the route is fetched again first. After a broker's master was lost, it is fetched in
the background.

While replicas change their master, the next attempt follows sooner than their Retry-After says,
which cannot be less than a second: a hand-over takes less than half of that.

Source: RocketMQ 5.3, ``DefaultMQProducerImpl.sendDefaultImpl``, ``retryResponseCodes``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from eruca.contract.errors import (
    ErucaError,
    InternalError,
    NoRouteError,
    NotMasterError,
    NotMasterForSureError,
    OutcomeUnknownError,
    PermissionDeniedError,
    QueueNotFoundError,
    QuotaExceededError,
    TimeoutExpiredError,
    TopicNotFoundError,
    TransportError,
    UnavailableError,
)
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.pauses import doubled

ATTEMPT_SECONDS_MIN: Final = 0.2  # with less time, a busy broker would seem to fail
BACK_OFF_SECONDS: Final = 0.02  # before the same broker is retried; doubles
BACK_OFF_SECONDS_MAX: Final = 1.0
MASTER_PAUSE_SECONDS_MAX: Final = 0.2  # … while replicas change their master
assert BACK_OFF_SECONDS <= MASTER_PAUSE_SECONDS_MAX <= BACK_OFF_SECONDS_MAX

_STALE_ROUTE: Final = (TopicNotFoundError, QueueNotFoundError, PermissionDeniedError, NoRouteError)
_UNREACHED: Final = (TransportError, TimeoutExpiredError)
MASTERLESS: Final = (NotMasterError, NotMasterForSureError)
"""The broker has no master for the moment: its other replicas elect one."""
_MASTER_LEFT: Final = (*MASTERLESS, OutcomeUnknownError)


@dataclass(frozen=True, slots=True)
class Retry:
    """The steps before the next attempt."""

    wait_seconds: float
    refresh_route: bool


class Patience:
    """The brokers that sent Retry-After during one send, each with its end.

    Times are seconds of one monotonic clock, given by the caller. None stands for the name servers,
    if no broker has been tried yet.
    """

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[str | None, float] = {}

    def note(self, broker_name: str | None, error: ErucaError, now: float) -> None:
        """Record the outcome of an attempt at a broker."""
        if error.retry_after_seconds is not None and not isinstance(error, MASTERLESS):
            self._until[broker_name] = now + error.retry_after_seconds

    def is_asked(self, broker_name: str, now: float) -> bool:
        """Tell whether the broker must not be tried yet."""
        return now < self._until.get(broker_name, now)

    def seconds(self, broker_names: Iterable[str | None], now: float) -> float:
        """Return the seconds until the first of these brokers may be tried."""
        return max(min(self._until.get(name, now) for name in broker_names) - now, 0.0)

    def queues(self, queues: Sequence[MessageQueue], now: float) -> Sequence[MessageQueue]:
        """Return the *queues* whose brokers may be tried; all of them if there are none."""
        if not self._until:
            return queues
        return [queue for queue in queues if not self.is_asked(queue.broker_name, now)] or queues


def attempt_seconds(remaining_seconds: float, attempts_left: int) -> float:
    """Return the timeout of the next attempt; *attempts_left* includes it."""
    if attempts_left <= 1:
        return remaining_seconds
    return min(remaining_seconds, max(remaining_seconds / 2, ATTEMPT_SECONDS_MIN))


def next_attempt(
    error: ErucaError,
    *,
    attempt: int,
    attempts_max: int,
    remaining_seconds: float,
    has_other_broker: bool,
    patience_seconds: float,
    awaits_master: bool = False,
) -> Retry | None:
    """Return the plan for attempt number *attempt* + 1, or None if there is none.

    Args:
        error: The error of this attempt.
        attempt: Its number, from 1.
        attempts_max: Maximum number of attempts.
        remaining_seconds: Time until the deadline.
        has_other_broker: Whether the next attempt can go to another broker at once.
        patience_seconds: Otherwise: the time until a possible broker may be tried.
        awaits_master: Whether the broker has replicas, of which one is about to be its master.
    """
    if attempt >= attempts_max or remaining_seconds <= 0:
        return None
    if isinstance(error, _STALE_ROUTE):
        return Retry(_back_off(attempt) if attempt > 1 else 0.0, refresh_route=True)
    if not isinstance(error, (*_UNREACHED, UnavailableError, InternalError)):
        return None
    wait_seconds = 0.0
    if not has_other_broker:
        most_seconds = MASTER_PAUSE_SECONDS_MAX if awaits_master else BACK_OFF_SECONDS_MAX
        wait_seconds = max(patience_seconds, min(_back_off(attempt), most_seconds))
        if wait_seconds >= remaining_seconds:
            return None
    return Retry(wait_seconds, refresh_route=isinstance(error, (*_UNREACHED, *_MASTER_LEFT)))


def is_brokers_fault(error: ErucaError) -> bool:
    """Tell whether an error is the broker's fault, and not the request's.

    A change of the master is not: the same broker name works again at another replica. Nor is a
    quota of the caller, whose broker works.
    """
    if isinstance(error, (*_MASTER_LEFT, QuotaExceededError)):
        return False
    return isinstance(error, (*_UNREACHED, UnavailableError, InternalError))


def needs_route(error: ErucaError) -> bool:
    """Tell whether the route must be fetched before another attempt makes sense."""
    return isinstance(error, _STALE_ROUTE)


def was_reached(error: ErucaError) -> bool:
    """Tell whether any answer came from the broker."""
    return not isinstance(error, _UNREACHED)


def _back_off(attempt: int) -> float:
    return doubled(BACK_OFF_SECONDS, attempt - 1, BACK_OFF_SECONDS_MAX)
