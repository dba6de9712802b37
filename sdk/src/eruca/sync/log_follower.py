"""Follow a broker's log: every record in order as it is written, system topics included.

Generated from ``eruca.aio.log_follower`` by ``sdk/tools/generate_sync.py``; change that one.
See :mod:`eruca.sync.portal` for its design and its rules for threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from eruca.aio.log_follower import AsyncLogFollower
from eruca.sync.portal import Portal

if TYPE_CHECKING:
    from types import TracebackType

    from eruca.core.messages.log_block import LogBlock, LogRecord


class LogFollower:
    """Reads one broker's log; made by :meth:`eruca.Client.log_follower`."""

    def __init__(self, portal: Portal, twin: AsyncLogFollower) -> None:
        self._portal = portal
        self._twin = twin

    @property
    def next_offset(self) -> int | None:
        """Offset of the next record; None before the first read, unless it was given."""
        return self._twin.next_offset

    @property
    def epoch(self) -> int | None:
        """Epoch of the records last returned; None before the first read, unless it was given."""
        return self._twin.epoch

    @property
    def end_offset(self) -> int | None:
        """End of the log at the last read; None before the first."""
        return self._twin.end_offset

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> LogRecord:
        """Return the next record, however long it takes.

        Raises:
            RecordNotFoundError: Retention has deleted the offset, or no record starts there.
            StaleEpochError: The log has other records before the offset than were read.
            BrokerNotFoundError: No such broker was ever registered.
        """
        while (item := self._twin._hand_out()) is None:
            if not self._portal.call(self._twin._fill):
                raise StopIteration
        return item

    def read(self, wait_seconds: float = 0.0) -> list[LogRecord]:
        """Return the next records, about a megabyte at most; empty if there are none.

        Unlike iterating, it raises if the broker is away, and does not wait for it.

        Args:
            wait_seconds: Maximum wait at the end of the log, up to 30 s.
        """
        return self._portal.call(self._twin.read, wait_seconds)

    def read_block(self, wait_seconds: float = 0.0, *, bytes_max: int | None = None) -> LogBlock:
        """Return the next records as one block, for readers that process thousands in one step.

        Like ``read`` it raises if the broker is away. The caller must check that the block's bytes
        are valid records.

        Args:
            wait_seconds: Maximum wait at the end of the log, up to 30 s.
            bytes_max: Approximate number of bytes, up to 8 MiB; the block has at least one record.
        """
        return self._portal.call(self._twin.read_block, wait_seconds, bytes_max=bytes_max)

    def close(self) -> None:
        """Stop reading."""
        self._portal.leave(self._twin.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.leave(self._twin.__aexit__, kind, error, traceback)
