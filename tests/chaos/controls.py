"""Switches that the harness turns in a running process: its disk, its clock; and two readings.

They are in a small file that both processes map. The process under test reads them at each write
and each look at its clock, and notes how far its log is written and how far it is durable. So a
power cut can be simulated afterwards: bytes behind the durable offset may be gone.
"""

from __future__ import annotations

import mmap
import struct
from enum import IntEnum
from pathlib import Path
from typing import Final

_SIZE: Final = 64
_MODE: Final = struct.Struct("<q")  # each value has eight bytes, so that it is written at once
_REAL: Final = struct.Struct("<d")


class Disk(IntEnum):
    """The state of a disk."""

    SOUND = 0
    FULL = 1  # ENOSPC on each write
    FAILING_WRITES = 2  # EIO on each write
    FAILING_FLUSHES = 3  # EIO on each fdatasync
    SLOW = 4  # each fdatasync takes its time


class Controls:
    """The switches of one process.

    Args:
        path: The file; it is made if it is missing.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_SIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)

    @property
    def disk(self) -> Disk:
        """The state of the disk."""
        return Disk(self._get(0))

    @disk.setter
    def disk(self, state: Disk) -> None:
        self._put(0, state)

    @property
    def clock_offset_ms(self) -> int:
        """Milliseconds by which the wall clock is ahead."""
        return self._get(8)

    @clock_offset_ms.setter
    def clock_offset_ms(self, offset: int) -> None:
        self._put(8, offset)

    @property
    def clock_rate(self) -> float:
        """Seconds per second that the wall clock gains since :attr:`drifts_since`."""
        rate: float = _REAL.unpack_from(self._map, 16)[0]
        return rate

    @clock_rate.setter
    def clock_rate(self, rate: float) -> None:
        _REAL.pack_into(self._map, 16, rate)

    @property
    def drifts_since(self) -> float:
        """The machine's monotonic time from which the clock drifts."""
        since: float = _REAL.unpack_from(self._map, 24)[0]
        return since

    @drifts_since.setter
    def drifts_since(self, since: float) -> None:
        _REAL.pack_into(self._map, 24, since)

    @property
    def written_offset(self) -> int:
        """The log offset behind the last byte that was written."""
        return self._get(32)

    @written_offset.setter
    def written_offset(self, log_offset: int) -> None:
        self._put(32, log_offset)

    @property
    def durable_offset(self) -> int:
        """The log offset before which everything was flushed."""
        return self._get(40)

    @durable_offset.setter
    def durable_offset(self, log_offset: int) -> None:
        self._put(40, log_offset)

    def heal(self) -> None:
        """Make disk and clock sound."""
        self.disk = Disk.SOUND
        self.clock_offset_ms = 0
        self.clock_rate = 0.0

    def _get(self, position: int) -> int:
        value: int = _MODE.unpack_from(self._map, position)[0]
        return value

    def _put(self, position: int, value: int) -> None:
        _MODE.pack_into(self._map, position, value)
