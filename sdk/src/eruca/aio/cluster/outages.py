"""Log an outage once when it begins and once when it ends.

A background task retries every second or so. One line per attempt would drown all other lines, and
only the first and the last say something new. The attempts between are logged at debug level.
"""

from __future__ import annotations

import logging
from typing import Final

from eruca.contract.errors import ErucaError


class Outages:
    """Logs an outage's first error of each kind and its end; the rest at debug level.

    Args:
        logger: The logger to use.
        failed: Format of the failure line, with a name and an error: ``"no answer from %s: %s"``.
        over: Format of the recovery line, with a name: ``"%s answers again"``.
        level: Level of the lines that are not for debugging.
    """

    def __init__(
        self, logger: logging.Logger, *, failed: str, over: str, level: int = logging.INFO
    ) -> None:
        self._logger: Final = logger
        self._failed: Final = failed
        self._over: Final = over
        self._level: Final = level
        # error codes that were logged, by the name of the failed part
        self._told: dict[str, set[str]] = {}

    def failed(self, name: str, error: ErucaError) -> None:
        """Record that *name* has failed."""
        told = self._told.setdefault(name, set())
        level = logging.DEBUG if error.code in told else self._level
        told.add(error.code)
        self._logger.log(level, self._failed, name, error)

    def answered(self, name: str) -> None:
        """Record that *name* has succeeded."""
        if self._told.pop(name, None) is not None:
            self._logger.log(self._level, self._over, name)

    def forget(self, name: str) -> None:
        """Record that *name* is not tried any more."""
        self._told.pop(name, None)
