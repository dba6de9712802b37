"""Limit the number of concurrent exports, and count their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eruca.contract.errors import NotReadyError, OverloadedError

RETRY_AFTER_SECONDS: Final = 2.0


class ExportSlots:
    """Limits the number of concurrent exports.

    Args:
        count_max: The maximum.
    """

    def __init__(self, *, count_max: int) -> None:
        self.rows = 0  # exported since the start
        self.bytes = 0
        self.cut = 0  # exports that ended before their last row
        self.running = 0
        self._count_max = count_max
        self._streams: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Occupy a slot for one export.

        Raises:
            OverloadedError: All slots are occupied.
            NotReadyError: The service is stopping.
        """
        self.check_running()
        if self.running >= self._count_max:
            raise OverloadedError(
                f"export_count_max ({self._count_max}) is reached",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def check_running(self) -> None:
        """Refuse an export that has not begun to send if the service is stopping.

        Raises:
            NotReadyError: The service is stopping.
        """
        if self._is_stopping:
            raise NotReadyError("the service is stopping", retry_after_seconds=RETRY_AFTER_SECONDS)

    @contextmanager
    def stoppable(self, stream: asyncio.Task[None]) -> Iterator[None]:
        """Cancel *stream* if the service stops meanwhile."""
        assert not self._is_stopping
        self._streams.add(stream)
        try:
            yield
        finally:
            self._streams.discard(stream)

    def stop(self) -> None:
        """Cut the running exports; readers continue elsewhere, or later, from their position."""
        self._is_stopping = True
        for stream in tuple(self._streams):
            stream.cancel()
