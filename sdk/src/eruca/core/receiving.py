"""Receiving over plain HTTP: which brokers are asked, how long each may hold, when it is enough.

Brokers are asked one after the other, in rounds. In the first round none of them waits, for the
next one may have messages at once. A broker that fails is passed over as long as it asks for
patience, and matters only where all fail: then there is a pause, and in the end an error.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from eruca.contract.errors import ErucaError, TopicNotFoundError
from eruca.contract.limits import WAIT_SECONDS_MAX

HOLD_SECONDS: Final = 1.0  # at one broker of several, before the next one is asked
FAILURE_SECONDS: Final = 0.2  # before brokers are asked again that all failed

Target = TypeVar("Target", bound=Hashable)


class _Failure(NamedTuple):
    error: ErucaError
    retry_at: float  # the broker has asked for so much patience


class ReceiveRounds(Generic[Target]):
    """The rounds of one call. All times are in seconds of one clock.

    Args:
        deadline: When there is nothing more to wait for.
    """

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._is_first = True
        self._failures: dict[Target, _Failure] = {}  # of those that have not answered since

    def is_patient_with(self, target: Target, now: float) -> bool:
        """Tell whether a target has asked not to be asked yet."""
        return target in self._failures and now < self._failures[target].retry_at

    def hold(self, target_count: int, now: float) -> float:
        """Return how many seconds one of so many targets may hold the request."""
        if self._is_first:
            return 0.0
        left = max(self._deadline - now, 0.0)
        return min(left, WAIT_SECONDS_MAX if target_count == 1 else HOLD_SECONDS)

    def is_last_asked(self, now: float) -> bool:
        """Tell whether whoever is asked now is the last one, if it answers."""
        return not self._is_first and now >= self._deadline

    def answered(self, target: Target) -> None:
        """Note that a target has nothing."""
        self._failures.pop(target, None)

    def failed(self, target: Target, error: ErucaError, now: float) -> None:
        """Note that a target has not answered, or has asked for patience."""
        self._failures[target] = _Failure(error, now + (error.retry_after_seconds or 0.0))

    def pause(self, targets: Sequence[Target], now: float) -> float | None:
        """Return how many seconds to pause before the next round; None: there is none.

        Args:
            targets: Those of the round that ends, at least one. Nothing was found.
            now: The time.

        Raises:
            ErucaError: None of them answers, and there is nothing more to wait for.
        """
        self._is_first = False
        failed = [self._failures[target] for target in targets if target in self._failures]
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
