"""Explain a failed job in a line or two instead of two stack traces.

What a Python source raises in a worker comes back as text, within a traceback, within the JVM's.
"""

from __future__ import annotations

import re
from typing import Final

_OURS: Final = re.compile(
    r"^(?:pyspark_eruca\.errors|eruca_spark\.lake(?:_files)?)\.(?P<name>\w+): (?P<text>.+)$",
    re.MULTILINE,
)
_FRAME: Final = "\tat "  # begins a line of a stack trace of Java's
_LINES_MAX: Final = 6  # of a reason that is not ours


def reason_of(error: BaseException) -> str:
    """Return the innermost reason of ours that *error* tells of, else how it begins."""
    text = str(error)
    ours = list(_OURS.finditer(text))
    if ours:
        return ours[-1]["text"]
    told = [line for line in text.strip().splitlines() if not line.startswith(_FRAME)]
    return "\n".join(told[:_LINES_MAX])
