"""Describe failures of the program's own code as text that can be sent.

An exception may hold anything: text that UTF-8 cannot say, as names of files that the system could
not decode, a NUL, which no database takes, or a ``__str__`` that raises itself. None of them may
make a second failure of the first.
"""

from __future__ import annotations

import reprlib

from eruca.contract.limits import ERROR_TEXT_SIZE_MAX


def text_of_error(error: BaseException) -> str:
    """Return an exception's name and text."""
    try:
        text = str(error)
    except Exception:  # the program's: its class is all that can be told
        text = "(it cannot be shown)"
    return sendable(f"{type(error).__name__}: {text}")


def text_of_value(value: object) -> str:
    """Return a value as Python writes it, shortened."""
    return sendable(reprlib.repr(value))


def sendable(text: str) -> str:
    """Return as much of *text* as is kept; what cannot be sent is written as an escape."""
    escaped = text[:ERROR_TEXT_SIZE_MAX].replace("\0", r"\x00")
    shown = escaped.encode("utf-8", "backslashreplace")
    return shown[:ERROR_TEXT_SIZE_MAX].decode("utf-8", "ignore")
