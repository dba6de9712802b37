"""How long to wait before a child that died is started again, and how its death is put in words."""

from __future__ import annotations

import signal
from typing import Final

FIRST_DELAY_SECONDS: Final = 0.5
DELAY_SECONDS_MAX: Final = 30.0
SETTLED_SECONDS: Final = 60.0  # a child that lived this long starts counting anew


def deaths_in_a_row(deaths_before: int, lived_seconds: float) -> int:
    """Return which death in a row this is, from 1; a long life forgets the earlier ones."""
    return 1 if lived_seconds >= SETTLED_SECONDS else deaths_before + 1


def restart_delay_seconds(deaths: int) -> float:
    """Return the pause after the *deaths*-th death in a row: doubling, up to a limit."""
    assert deaths >= 1
    # The exponent is bounded before it is used, or a child that dies for days would overflow.
    return min(FIRST_DELAY_SECONDS * 2.0 ** min(deaths - 1, 16), DELAY_SECONDS_MAX)


def exit_text(code: int) -> str:
    """Return what became of a process, from its return code: negative is a signal's number."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
