"""Decide when an undecided transaction is checked, and when it expires.

A transaction is **immune** at first: for the time-out after its beginning, or for as long as its
half message requests. Then its producer group is asked once per interval. That ends with a
decision, when the checks are used up, or when the transaction is too old. In the last two cases it
expires: it is rolled back and parked.

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
REACHABLE_SECONDS_MAX: Final = 3_600  # an older sighting says nothing about a group


@dataclass(frozen=True, slots=True)
class CheckRules:
    """The settings of checking."""

    timeout_ms: int = TIMEOUT_MS  # immunity of a transaction that requests none
    interval_ms: int = INTERVAL_MS  # from one check to the next
    checks_max: int = CHECKS_MAX
    age_max_ms: int = AGE_MAX_MS  # an older transaction expires without further checks


class Verdict(Enum):
    """The action for an undecided transaction."""

    CHECK = "check"
    GIVE_UP = "give up"
    IMMUNE = "immune"  # by the time-out: then all later ones are immune, too
    IMMUNE_BY_WISH = "immune by wish"  # by its own immunity: later ones may not be


def verdict(
    age_ms: int, *, checks: int | None, own_immunity_ms: int | None, rules: CheckRules
) -> Verdict:
    """Decide what to do with an undecided transaction.

    Args:
        age_ms: Time since its beginning; negative if clocks disagree, which gives no immunity.
        checks: Number of checks so far; None if unknown.
        own_immunity_ms: The immunity that its half message requests; None if none.
        rules: The settings.
    """
    if (checks is not None and checks >= rules.checks_max) or age_ms > rules.age_max_ms:
        return Verdict.GIVE_UP
    if own_immunity_ms is not None:
        return Verdict.IMMUNE_BY_WISH if age_ms <= own_immunity_ms else Verdict.CHECK
    return Verdict.IMMUNE if 0 <= age_ms <= rules.timeout_ms else Verdict.CHECK


def due_ms(
    begun_ms: int, *, own_immunity_ms: int | None, checked_ms: int | None, rules: CheckRules
) -> int:
    """Return when a transaction is due: after its immunity and the last check's interval."""
    immunity_ms = rules.timeout_ms if own_immunity_ms is None else own_immunity_ms
    first_ms = begun_ms + immunity_ms + 1
    return first_ms if checked_ms is None else max(first_ms, checked_ms + rules.interval_ms)
