"""When a broker's transactions are looked at next, if no event comes before.

States of the loop that looks::

    looking ──something was done, or failed──▶ resting ──poll period──▶ looking
       │                                                                  ▲
       └──nothing is due──▶ asleep ──a moment ahead, an event, the bound──┘

Time alone makes a transaction due at the moments in :class:`Ahead`. All else is an event, and wakes
the loop: rows that were folded, an answer whose broker did not take it, a group that can be reached
again, a clock that was set. A bound ends each sleep, since an event can be lost with the process or
the connection that should have brought it.

Invariant: no moment of *Ahead* passes without a look within a poll period of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from eruca_txn_checker.core.check_rules import CheckRules


@dataclass(frozen=True, slots=True)
class Ahead:
    """The first moments at which something falls due, ms since the epoch; None: none is ahead."""

    due_ms: int | None = None  # a transaction; by the broker's clock
    begun_ms: int | None = None  # of the oldest one that is overdue and not too old yet; the same
    opened_ms: int | None = None  # of the oldest check that may still be answered; by ours
    answered_ms: int | None = None  # of the oldest answer that its broker may still take; by ours


def seconds_to_next_look(
    ahead: Ahead, *, now_ms: int, at_broker_ms: int, rules: CheckRules, settle_after_ms: int
) -> float | None:
    """Return the seconds until time alone makes something due; None: it never does.

    Args:
        ahead: What is ahead.
        now_ms: The time, by the clock that all instances share.
        at_broker_ms: The time by the broker's.
        rules: When transactions are due.
        settle_after_ms: An answer that its broker has not taken by then is told again.
    """
    left_ms = [
        moment_ms + span_ms - clock_ms
        for moment_ms, span_ms, clock_ms in (
            (ahead.due_ms, 0, at_broker_ms),
            # These are over once more than the span has passed.
            (ahead.begun_ms, rules.age_max_ms + 1, at_broker_ms),
            (ahead.opened_ms, rules.interval_ms + 1, now_ms),
            (ahead.answered_ms, settle_after_ms + 1, now_ms),
        )
        if moment_ms is not None
    ]
    return max(min(left_ms), 0) / 1000 if left_ms else None
