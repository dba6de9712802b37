"""Absence: only a master knows that something does not exist.

A standby may not have copied yet what was acknowledged. So an answer without any result is the
master's (rule 7). The door does the same for errors that say "not found".
"""

from __future__ import annotations

from collections.abc import Callable

from eruca.contract.errors import ErucaError


class Absence:
    """Checks answers that say that there is nothing.

    Args:
        doubt: Returns why this broker cannot know that, or None.
    """

    def __init__(self, doubt: Callable[[], ErucaError | None] = lambda: None) -> None:
        self._doubt = doubt

    def check(self, *, is_found: bool) -> None:
        """Refuse an answer in which nothing is found, unless this broker can know that.

        Raises:
            NotMasterError: This replica is a standby; the master knows.
            NotMasterForSureError: The same, and the master is not known.
        """
        if not is_found and (doubt := self._doubt()) is not None:
            raise doubt
