"""Describe failures of the program's own code as text that can be sent.

An exception may contain text that UTF-8 cannot encode, such as an undecodable file name. It may
contain NUL, which databases refuse. Its ``__str__`` may raise. None of these may cause a second
failure.
"""

from __future__ import annotations

import reprlib

from eruca.contract.limits import ERROR_TEXT_SIZE_MAX


def text_of_error(error: BaseException) -> str:
    """Return an exception's name and text."""
    try:
        text = str(error)
    except Exception:  # from the program: only its class is known
        text = "(unprintable)"
    return sendable(f"{type(error).__name__}: {text}")


def text_of_value(value: object) -> str:
    """Return the ``repr`` of a value, shortened."""
    return sendable(reprlib.repr(value))


def sendable(text: str) -> str:
    """Return *text*, truncated, with escapes for characters that cannot be sent."""
    escaped = text[:ERROR_TEXT_SIZE_MAX].replace("\0", r"\x00")
    shown = escaped.encode("utf-8", "backslashreplace")
    return shown[:ERROR_TEXT_SIZE_MAX].decode("utf-8", "ignore")
