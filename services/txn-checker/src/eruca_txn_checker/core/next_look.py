"""Decide when to look at a broker's transactions next if no event comes before.

The states of the loop::

    looking ──work was done, or failed──▶ resting ──poll period──▶ looking
       │                                                              ▲
       └──nothing is due──▶ asleep ──a moment, an event, the bound────┘

Time alone makes a transaction due at the moments in :class:`Ahead`. Everything else is an event and
wakes the loop: folded rows, an answer that the broker did not accept, a group that is reachable
again, a clock that was set. A bound ends each sleep, because an event can be lost with the process
or the connection that should have delivered it.

Invariant: within a poll period of each moment in *Ahead* there is a look.
"""

from __future__ import annotations

from dataclasses import dataclass

from eruca_txn_checker.core.check_rules import CheckRules


@dataclass(frozen=True, slots=True)
class Ahead:
    """The first moments at which something falls due, ms since the epoch; None if there is none."""

    due_ms: int | None = None  # of a transaction; broker's clock
    begun_ms: int | None = None  # of the oldest overdue one not yet too old; broker's clock
    opened_ms: int | None = None  # of the oldest check that can still be answered; shared clock
    answered_ms: int | None = None  # of the oldest answer not yet confirmed; shared clock


def seconds_to_next_look(
    ahead: Ahead, *, now_ms: int, at_broker_ms: int, rules: CheckRules, forward_after_ms: int
) -> float | None:
    """Return the seconds until time alone makes something due; None if it never does.

    Args:
        ahead: The moments ahead.
        now_ms: Current time on the clock that all instances share.
        at_broker_ms: Current time on the broker's clock.
        rules: The settings of checking.
        forward_after_ms: Age at which an unconfirmed answer is forwarded again.
    """
    left_ms = [
        moment_ms + span_ms - clock_ms
        for moment_ms, span_ms, clock_ms in (
            (ahead.due_ms, 0, at_broker_ms),
            # These end once strictly more than the span has passed.
            (ahead.begun_ms, rules.age_max_ms + 1, at_broker_ms),
            (ahead.opened_ms, rules.interval_ms + 1, now_ms),
            (ahead.answered_ms, forward_after_ms + 1, now_ms),
        )
        if moment_ms is not None
    ]
    return max(min(left_ms), 0) / 1000 if left_ms else None
