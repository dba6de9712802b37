"""Receiving over plain HTTP: which brokers are asked, how long each may hold, when it is enough.

Brokers are asked one after the other, in rounds. In the first round none of them waits, for the
next one may have messages at once. A broker that fails is passed over as long as it asks for
patience. One that has not answered in time has cost all of that time, so it is left alone for
longer, as long as others answer. How brokers failed is remembered from one call to the next; it
matters only where all fail: then there is a pause, and in the end an error.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from eruca.contract.errors import ErucaError, TimeoutExpiredError, TopicNotFoundError
from eruca.contract.limits import WAIT_SECONDS_MAX

HOLD_SECONDS: Final = 1.0  # at one broker of several, before the next one is asked
FAILURE_SECONDS: Final = 0.2  # before brokers are asked again that all failed
HANG_SECONDS: Final = 10.0  # before one that did not answer in time is asked, if others answer

Target = TypeVar("Target", bound=Hashable)


class _Failure(NamedTuple):
    error: ErucaError
    retry_at: float  # the broker has asked for so much patience
    avoided_until: float  # as long as others answer


class Failures(Generic[Target]):
    """Those that have failed and not answered since. All times are in seconds of one clock."""

    def __init__(self) -> None:
        self._failures: dict[Target, _Failure] = {}

    def failed(self, target: Target, error: ErucaError, now: float) -> None:
        """Note that a target has not answered, or has asked for patience."""
        avoided_until = now + (HANG_SECONDS if isinstance(error, TimeoutExpiredError) else 0.0)
        retry_at = now + (error.retry_after_seconds or 0.0)
        self._failures[target] = _Failure(error, retry_at, avoided_until)

    def answered(self, target: Target) -> None:
        """Note that a target has answered."""
        self._failures.pop(target, None)

    def keep_only(self, targets: Collection[Target]) -> None:
        """Forget those that are not asked any more."""
        for target in self._failures.keys() - set(targets):
            del self._failures[target]

    def is_passed_over(self, target: Target, targets: Collection[Target], now: float) -> bool:
        """Tell whether one of *targets* is not to be asked yet."""
        failure = self._failures.get(target)
        if failure is None:
            return False
        return now < failure.retry_at or (
            now < failure.avoided_until and not self._failures.keys() >= set(targets)
        )

    def among(self, targets: Sequence[Target]) -> list[_Failure]:
        """Return how those of *targets* failed that did."""
        return [self._failures[target] for target in targets if target in self._failures]


class ReceiveRounds(Generic[Target]):
    """The rounds of one call.

    Args:
        deadline: When there is nothing more to wait for, by the failures' clock.
        failures: Of this call and of those before it.
    """

    def __init__(self, deadline: float, failures: Failures[Target]) -> None:
        self._deadline = deadline
        self._failures = failures
        self._is_first = True

    def hold(self, target_count: int, now: float) -> float:
        """Return how many seconds one of so many targets may hold the request."""
        if self._is_first:
            return 0.0
        left = max(self._deadline - now, 0.0)
        return min(left, WAIT_SECONDS_MAX if target_count == 1 else HOLD_SECONDS)

    def is_last_asked(self, now: float) -> bool:
        """Tell whether whoever is asked now is the last one, if it answers."""
        return not self._is_first and now >= self._deadline

    def pause(self, targets: Sequence[Target], now: float) -> float | None:
        """Return how many seconds to pause before the next round; None: there is none.

        Args:
            targets: Those of the round that ends, at least one. Nothing was found.
            now: The time.

        Raises:
            ErucaError: None of them answers, and there is nothing more to wait for.
        """
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
