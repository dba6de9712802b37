"""Receive over plain HTTP: choose the brokers to ask, their hold time, and the end.

A call asks the brokers one after the other, in rounds. In the first round no broker holds the
request, because the next one may have messages. A failed broker is skipped for its Retry-After
time. A broker that timed out has cost that whole time, so it is skipped for longer, as long as
others answer. Failures are remembered between calls. They matter only if all brokers fail: then the
call pauses, and finally raises an error.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from eruca.contract.errors import ErucaError, TimeoutExpiredError, TopicNotFoundError
from eruca.contract.limits import WAIT_SECONDS_MAX

HOLD_SECONDS: Final = 1.0  # at one broker of several, before asking the next one
FAILURE_SECONDS: Final = 0.2  # pause before asking again after all brokers failed
HANG_SECONDS: Final = 10.0  # before asking a broker that timed out, if others answer

assert HOLD_SECONDS <= WAIT_SECONDS_MAX, "brokers refuse to hold a request for longer"

Target = TypeVar("Target", bound=Hashable)


class _Failure(NamedTuple):
    error: ErucaError
    retry_at: float  # end of the broker's Retry-After
    avoided_until: float  # skipped until then, as long as others answer


class Failures(Generic[Target]):
    """The targets that have failed and not answered since; times are seconds of one clock."""

    def __init__(self) -> None:
        self._failures: dict[Target, _Failure] = {}

    def failed(self, target: Target, error: ErucaError, now: float) -> None:
        """Record that a target has failed, perhaps with a Retry-After."""
        avoided_until = now + (HANG_SECONDS if isinstance(error, TimeoutExpiredError) else 0.0)
        retry_at = now + (error.retry_after_seconds or 0.0)
        self._failures[target] = _Failure(error, retry_at, avoided_until)

    def answered(self, target: Target) -> None:
        """Record that a target has answered."""
        self._failures.pop(target, None)

    def keep_only(self, targets: Collection[Target]) -> None:
        """Drop the failures of all other targets."""
        for target in self._failures.keys() - set(targets):
            del self._failures[target]

    def is_passed_over(self, target: Target, targets: Collection[Target], now: float) -> bool:
        """Return whether *target*, one of *targets*, must not be asked yet."""
        failure = self._failures.get(target)
        if failure is None:
            return False
        return now < failure.retry_at or (
            now < failure.avoided_until and not self._failures.keys() >= set(targets)
        )

    def among(self, targets: Sequence[Target]) -> list[_Failure]:
        """Return the failures of *targets*."""
        return [self._failures[target] for target in targets if target in self._failures]


class ReceiveRounds(Generic[Target]):
    """The rounds of one call.

    Args:
        deadline: End of the wait, by the failures' clock.
        failures: Failures in this call and in earlier ones.
    """

    def __init__(self, deadline: float, failures: Failures[Target]) -> None:
        self._deadline = deadline
        self._failures = failures
        self._is_first = True

    def hold(self, target_count: int, now: float) -> float:
        """Return the seconds for which one of *target_count* targets may hold the request."""
        if self._is_first:
            return 0.0
        left = max(self._deadline - now, 0.0)
        return min(left, WAIT_SECONDS_MAX if target_count == 1 else HOLD_SECONDS)

    def is_last_asked(self, now: float) -> bool:
        """Return whether the target asked now is the last one, if it answers."""
        return not self._is_first and now >= self._deadline

    def pause(self, targets: Sequence[Target], now: float) -> float | None:
        """Return the seconds to pause before the next round; None: there is no next round.

        Args:
            targets: The targets of the round that ends, at least one; none had messages.
            now: The time.

        Raises:
            ErucaError: No target answers, and the deadline has passed.
        """
        assert targets, "nobody was asked in this round"
        self._is_first = False
        failed = self._failures.among(targets)
        have_all_failed = len(failed) == len(targets)
        is_over = now >= self._deadline
        has_no_topic = all(isinstance(failure.error, TopicNotFoundError) for failure in failed)
        if have_all_failed and (is_over or has_no_topic):
            raise failed[-1].error
        if is_over:
            return None
        if not have_all_failed:
            return 0.0
        retry_at = min(failure.retry_at for failure in failed)
        return min(max(retry_at - now, FAILURE_SECONDS), self._deadline - now)
