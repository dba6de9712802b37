"""When a transaction that nobody decided is asked about, and when it is given up.

A transaction is left alone while it is **immune**: for the time-out after its beginning, or for as
long as its half message asks. Then its producer group is asked, again and again with an interval
between, until somebody decides, or the checks are used up, or it is too old to ask about: then it
is given up, which means rolled back and parked.

Ages are whole milliseconds; a transaction is still immune at the very end of its immunity.

Source: RocketMQ 5.3, ``TransactionalMessageServiceImpl.check``, ``needDiscard``, ``needSkip``,
``getImmunityTime``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

TIMEOUT_MS: Final = 6_000  # RocketMQ's transactionTimeOut
INTERVAL_MS: Final = 30_000  # RocketMQ's transactionCheckInterval, from 5.1 on
CHECKS_MAX: Final = 15  # RocketMQ's transactionCheckMax
AGE_MAX_MS: Final = 72 * 3_600_000  # RocketMQ's fileReservedTime
REACHABLE_SECONDS_MAX: Final = 3_600  # a producer seen longer ago says nothing of its group


@dataclass(frozen=True, slots=True)
class CheckRules:
    """What an operator may set."""

    timeout_ms: int = TIMEOUT_MS  # immunity of what asks for none of its own
    interval_ms: int = INTERVAL_MS  # from one check to the next
    checks_max: int = CHECKS_MAX
    age_max_ms: int = AGE_MAX_MS  # what is older is given up without further questions


class Verdict(Enum):
    """What is to be done with an undecided transaction that is looked at."""

    CHECK = "check"
    GIVE_UP = "give up"
    IMMUNE = "immune"  # by the time-out: so is every later one
    IMMUNE_BY_WISH = "immune by wish"  # by its own immunity: later ones may not be


def verdict(
    age_ms: int, *, checks: int | None, own_immunity_ms: int | None, rules: CheckRules
) -> Verdict:
    """Decide about a transaction that is not decided.

    Args:
        age_ms: Since it was begun; negative where clocks disagree, which is no immunity.
        checks: How often its producer group has been asked; None where nobody has counted.
        own_immunity_ms: What its half message asks for; None: nothing.
        rules: What is set.
    """
    if (checks is not None and checks >= rules.checks_max) or age_ms > rules.age_max_ms:
        return Verdict.GIVE_UP
    if own_immunity_ms is not None:
        return Verdict.IMMUNE_BY_WISH if age_ms <= own_immunity_ms else Verdict.CHECK
    return Verdict.IMMUNE if 0 <= age_ms <= rules.timeout_ms else Verdict.CHECK


def due_ms(
    begun_ms: int, *, own_immunity_ms: int | None, checked_ms: int | None, rules: CheckRules
) -> int:
    """Return when a transaction is to be looked at: its immunity and the last check are over."""
    immunity_ms = rules.timeout_ms if own_immunity_ms is None else own_immunity_ms
    first_ms = begun_ms + immunity_ms + 1
    return first_ms if checked_ms is None else max(first_ms, checked_ms + rules.interval_ms)
