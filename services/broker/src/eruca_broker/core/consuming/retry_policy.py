"""Decide when a message is redelivered, and when it becomes a dead letter.

A message may be sent back as often as its group allows; then it becomes a dead letter. Before each
retry there is a delay. If the group has no policy, the delay is a delay level, two above the number
of earlier retries: 10 s, 30 s, 1 min … 2 h. That is four and three quarter hours in all for 16
retries.

Source: RocketMQ 5.3, ``AbstractSendMessageProcessor.consumerSendMsgBack``,
``SendMessageProcessor.handleRetryAndDLQ``, ``CustomizedRetryPolicy``, ``ExponentialRetryPolicy``,
``ConsumeMessagePopConcurrentlyService``. There a delay that exceeds a ``long`` wraps around and may
have any value; here it is the policy's longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from eruca_broker.core.records.scheduled import LEVELS, Wait
from eruca_broker.core.state.group_events import CustomizedDelays, ExponentialDelays

STEPS_SKIPPED: Final = 2  # of RocketMQ's steps: a first retry after 1 or 5 s would be too early
_EXPONENT_MAX: Final = 32
_LONG_MAX: Final = 2**63 - 1

RetryPolicy: TypeAlias = CustomizedDelays | ExponentialDelays | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on a message that was sent back."""

    reconsume_times: int  # the number of times that it has been sent back, this time included
    wait: Wait | None  # before the retry; None: it is a dead letter


def verdict(
    reconsume_times: int,
    *,
    times_max: int,
    policy: RetryPolicy,
    now_ms: int,
    level: int | None = None,
    delay_seconds: float | None = None,
) -> Verdict:
    """Decide on a message that has been sent back *reconsume_times* times before.

    Args:
        reconsume_times: Of the message.
        times_max: The maximum of *reconsume_times*.
        policy: The group's.
        now_ms: Since the epoch.
        level: The requested level: -1 is a dead letter at once, None or 0 leaves it to the policy.
        delay_seconds: The requested delay, instead of a level.
    """
    if (level or 0) < 0 or reconsume_times >= times_max:
        return Verdict(reconsume_times + 1, None)
    if delay_seconds is not None:
        wait = Wait(deliver_at_ms=now_ms + round(delay_seconds * 1000))
    elif level or policy is None:
        wanted = level or reconsume_times + STEPS_SKIPPED + 1
        wait = Wait(level=min(wanted, LEVELS.max_level))
    else:
        wait = Wait(deliver_at_ms=now_ms + policy_delay_ms(policy, reconsume_times))
    return Verdict(reconsume_times + 1, wait)


def policy_delay_ms(policy: CustomizedDelays | ExponentialDelays, reconsume_times: int) -> int:
    """Return a group's delay before the retry of a message that was sent back so often before."""
    if isinstance(policy, CustomizedDelays):
        steps = [round(seconds * 1000) for seconds in policy.delays_seconds]
        return step_delay_ms(steps, reconsume_times)
    initial_ms = round(policy.initial_seconds * 1000)
    grown_ms = grown_delay_ms(initial_ms, policy.multiplier, reconsume_times)
    return min(grown_ms, round(policy.seconds_max * 1000))


def step_delay_ms(steps_ms: Sequence[int], reconsume_times: int, *, skipped: int = 0) -> int:
    """Return the step of a retry; the last step applies to all further retries."""
    return steps_ms[min(max(reconsume_times, 0) + skipped, len(steps_ms) - 1)]


def grown_delay_ms(initial_ms: int, multiplier: float, reconsume_times: int) -> int:
    """Return a delay that grows with each retry, before any maximum is applied."""
    exponent = min(max(reconsume_times, 0), _EXPONENT_MAX)
    return int(initial_ms * min(multiplier**exponent, _LONG_MAX))
