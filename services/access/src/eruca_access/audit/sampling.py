"""Decide which refusals, and which uses of credentials, get an audit record of their own. Pure.

Anybody can cause refusals. So each caller gets a few records in a window of time; its other
refusals are counted, and one record at the window's end says how many there were. A caller is a
principal, or the network of an unknown one.

A credential that is used all the time gets one record an hour from each address.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

REFUSALS_WINDOW_SECONDS: Final = 60.0
REFUSALS_PER_WINDOW: Final = 10  # of one caller
CALLERS_MAX: Final = 1_024  # in the windows that are open; all others share one
USE_SECONDS: Final = 3_600.0
USES_MAX: Final = 65_536  # of credentials from addresses that are remembered
EVERYBODY_ELSE: Final = ""


@dataclass(slots=True)
class _Window:
    ends_at: float
    written_count: int = 0
    left_out_count: int = 0


class LeftOut(NamedTuple):
    """Refusals without a record of their own.

    Attributes:
        caller: Empty: of callers beyond the number of windows.
        refusal_count: Their number.
    """

    caller: str
    refusal_count: int


class RefusalSampler:
    """Chooses the refusals that are written; times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}  # those that end first are first
        self._closed: list[LeftOut] = []

    def writes(self, caller: str, now: float) -> bool:
        """Return whether a refusal of *caller* gets a record; count it if not."""
        window = self._windows.get(caller)
        if window is not None and now >= window.ends_at:
            self._close(caller)
            window = None
        if window is None and len(self._windows) >= CALLERS_MAX:
            caller = EVERYBODY_ELSE
            window = self._windows.get(caller)
        if window is None:
            window = self._windows[caller] = _Window(now + REFUSALS_WINDOW_SECONDS)
        if window.written_count < REFUSALS_PER_WINDOW:
            window.written_count += 1
            return True
        window.left_out_count += 1
        return False

    def ended(self, now: float) -> Iterator[LeftOut]:
        """Yield what was left out in the windows that have ended, once."""
        for caller in [name for name, window in self._windows.items() if now >= window.ends_at]:
            self._close(caller)
        closed, self._closed = self._closed, []
        yield from closed

    def _close(self, caller: str) -> None:
        count = self._windows.pop(caller).left_out_count
        if count:
            self._closed.append(LeftOut(caller, count))


class FirstUses:
    """Tells the first use in an hour of a credential from an address; times are monotonic."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, str], float] = {}

    def use(self, credential: str, address: str, now: float) -> tuple[bool, float]:
        """Return whether this use is the first one, and the time of the next such one."""
        key = (credential, address)
        until = self._until.get(key)
        if until is not None and now < until:
            return False, until
        if len(self._until) >= USES_MAX:
            self._until.clear()
        until = self._until[key] = now + USE_SECONDS
        return True, until
