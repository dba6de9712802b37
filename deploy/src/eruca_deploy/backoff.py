"""The pause before a dead child is restarted, and the text that describes its death."""

from __future__ import annotations

import signal
from typing import Final

FIRST_DELAY_SECONDS: Final = 0.5
DELAY_SECONDS_MAX: Final = 30.0
SETTLED_SECONDS: Final = 60.0  # after so long a life the count of deaths starts again


def deaths_in_a_row(deaths_before: int, lived_seconds: float) -> int:
    """Return the number of this death in a row, from 1; a long life resets the count."""
    return 1 if lived_seconds >= SETTLED_SECONDS else deaths_before + 1


def restart_delay_seconds(deaths: int) -> float:
    """Return the pause after the *deaths*-th death in a row: it doubles, up to a limit."""
    assert deaths >= 1
    # Bound the exponent first: a child that keeps dying for days would cause an overflow.
    return min(FIRST_DELAY_SECONDS * 2.0 ** min(deaths - 1, 16), DELAY_SECONDS_MAX)


def exit_text(code: int) -> str:
    """Describe a process's end from its return code; negative is a signal's number."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
