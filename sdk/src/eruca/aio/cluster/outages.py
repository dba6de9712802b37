"""Report an outage once when it begins and once when it is over.

Whoever works in the background tries again every second or so. A line for each attempt would drown
all others; and only the first and the last one say something new. Those between are for debugging.
"""

from __future__ import annotations

import logging
from typing import Final

from eruca.contract.errors import ErucaError


class Outages:
    """Tells of an outage's first error of each kind, and of its end; of the rest at debug level.

    Args:
        logger: Whose lines these are.
        failed: Says what fails, of a name and an error: ``"no answer from %s: %s"``.
        over: Says that it does not fail any more, of a name: ``"%s answers again"``.
        level: Of the lines that are not for debugging.
    """

    def __init__(
        self, logger: logging.Logger, *, failed: str, over: str, level: int = logging.INFO
    ) -> None:
        self._logger: Final = logger
        self._failed: Final = failed
        self._over: Final = over
        self._level: Final = level
        self._told: dict[str, set[str]] = {}  # the codes of the errors of what fails, by its name

    def failed(self, name: str, error: ErucaError) -> None:
        """Note that *name* has failed."""
        told = self._told.setdefault(name, set())
        level = logging.DEBUG if error.code in told else self._level
        told.add(error.code)
        self._logger.log(level, self._failed, name, error)

    def answered(self, name: str) -> None:
        """Note that *name* has not failed."""
        if self._told.pop(name, None) is not None:
            self._logger.log(self._level, self._over, name)

    def forget(self, name: str) -> None:
        """Note that nobody tries *name* any more."""
        self._told.pop(name, None)
