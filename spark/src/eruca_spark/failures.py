"""Explain a failed job in a line or two instead of two stack traces.

An exception of a Python source in a worker arrives as text, in a Python traceback in a JVM stack
trace.
"""

from __future__ import annotations

import re
from typing import Final

_OURS: Final = re.compile(
    r"^(?:eruca\.exporting\.errors|eruca_spark\.lake(?:_files)?)\.(?P<name>\w+): (?P<text>.+)$",
    re.MULTILINE,
)
_FRAME: Final = "\tat "  # begins a line of a Java stack trace
_LINES_MAX: Final = 6  # of an unknown reason


def name_of(error: BaseException) -> str:
    """Return the class of the innermost of our errors in *error*; if there is none, its own."""
    ours = list(_OURS.finditer(str(error)))
    return ours[-1]["name"] if ours else type(error).__name__


def reason_of(error: BaseException) -> str:
    """Return the innermost of our errors in *error*; if there is none, its first lines."""
    text = str(error)
    ours = list(_OURS.finditer(text))
    if ours:
        return ours[-1]["text"]
    told = [line for line in text.strip().splitlines() if not line.startswith(_FRAME)]
    return "\n".join(told[:_LINES_MAX])
