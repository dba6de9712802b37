"""Rules of RocketMQ's broker that the product does not need, and that vectors are about."""

from __future__ import annotations

import re
from typing import Final

from eruca_broker.core.consuming.retry_policy import STEPS_SKIPPED, step_delay_ms
from eruca_broker.core.records.scheduled import LEVELS
from eruca_txn_checker.core.check_rules import CheckRules

_LONG: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NO_LONG: Final = -1  # what RocketMQ reads where there is no number


def is_resend_dead(reconsume_times: int, times_max: int, *, is_orderly: bool) -> bool:
    """Tell whether a message that a consumer itself sends to its retry topic is a dead letter.

    That is how clients of RocketMQ help themselves where sending back has failed. It has been
    counted already, so one more is allowed; an ordered group does not retry that way at all.
    """
    return is_orderly or reconsume_times > times_max


def invisible_after_failure_ms(level: int, reconsume_times: int) -> int:
    """Return how long a delivery that failed stays invisible: by a level, or by its attempts."""
    steps = LEVELS.delays_ms
    return step_delay_ms(steps, level or reconsume_times, skipped=STEPS_SKIPPED)


def immunity_ms_of(text: str | None, rules: CheckRules) -> int | None:
    """Return the immunity that a half message's property asks for; None: it has none.

    Text that is no number of seconds means the time-out, and so does -1.
    """
    if text is None:
        return None
    seconds = int(text) if _LONG.fullmatch(text) else _NO_LONG
    return rules.timeout_ms if seconds == _NO_LONG else seconds * 1000
