"""RocketMQ's classic replication protocol, as its master speaks it; without I/O.

A slave connects and *reports* the end of its log in 8 bytes, again whenever it has appended, and
every five seconds. The first report is its request: the log from there on. The master sends
*frames*: a log offset (8 bytes), a size (4 bytes), and so many bytes of the log. A frame without
bytes is a heartbeat. Neither side identifies itself, and nothing proves that the slave has the
bytes before its first report.

RocketMQ's slave demands of each frame:

- Its log offset is the end of the slave's log, in heartbeats too. An empty slave accepts any.
- Its bytes are in one file of the log, which is filled to its end before the next one begins.
- It fits into a buffer of 4 MiB, with its header.

The slave appends frames as a whole. So a frame ends after a record, and a slave that connects again
reports the start of a record. Only what is larger than that buffer is divided.

Source: RocketMQ 5.3, ``DefaultHAConnection``, ``DefaultHAClient``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from eruca.contract.records import BLANK_SIZE_MIN, MAGIC_BLANK, RECORD_SIZE_MIN

REPORT_SIZE: Final = 8  # bytes
FRAME_SIZE: Final = 256 * 1024  # bytes of log in a frame, if they are several records
FRAME_SIZE_MAX: Final = 4 * 1024**2 - 12  # bytes of log in a frame: what the slave has room for

_HEADER: Final = struct.Struct(">qi")
_BLANK: Final = struct.Struct(">iI")


class SlaveError(Exception):
    """A slave that cannot be served; the text says why, and what to do."""


class Frame(NamedTuple):
    """Bytes of the log, in one segment."""

    log_offset: int
    data: memoryview  # empty: a heartbeat

    @property
    def end(self) -> int:
        """Log offset after its bytes."""
        return self.log_offset + len(self.data)

    @property
    def header(self) -> bytes:
        """Its header."""
        return _HEADER.pack(self.log_offset, len(self.data))


def heartbeat(log_offset: int) -> Frame:
    """Return the heartbeat for a slave whose log ends at *log_offset*."""
    return Frame(log_offset, memoryview(b""))


def report_of(data: bytes) -> int:
    """Return the log offset in a report.

    Raises:
        SlaveError: There is none.
    """
    log_offset = int.from_bytes(data, signed=True)
    if log_offset < 0:
        raise SlaveError(f"expected a log offset of 0 or more, found {log_offset}: it is no slave")
    return log_offset


def frames(records: bytes, log_offset: int, end: int) -> Iterator[Frame]:
    """Divide a stretch of the log within a segment into frames.

    Args:
        records: Whole records, back to back.
        log_offset: Log offset of the first one.
        end: Log offset after the stretch. If it is beyond the records, a blank record fills the
            segment up to there.

    Raises:
        SlaveError: These are no records.
    """
    for unit in _units(records, log_offset, end):
        for first in range(0, len(unit.data), FRAME_SIZE_MAX):
            yield Frame(unit.log_offset + first, unit.data[first : first + FRAME_SIZE_MAX])


def _units(records: bytes, log_offset: int, end: int) -> Iterator[Frame]:
    """Yield what must not be divided: as many records as one frame should have; a blank one."""
    view, begin, position = memoryview(records), 0, 0
    while position < len(view):
        size = int.from_bytes(view[position : position + 4])
        if not RECORD_SIZE_MIN <= size <= len(view) - position:
            raise SlaveError(f"expected a record at log offset {log_offset + position}, found none")
        if position > begin and position + size - begin > FRAME_SIZE:
            yield Frame(log_offset + begin, view[begin:position])
            begin = position
        position += size
    if position > begin:
        yield Frame(log_offset + begin, view[begin:position])
    blank_size = end - log_offset - position
    if blank_size:
        if blank_size < BLANK_SIZE_MIN:
            raise SlaveError(f"expected the log's next part at {log_offset + position}, not {end}")
        blank = _BLANK.pack(blank_size, MAGIC_BLANK).ljust(blank_size, b"\0")
        yield Frame(log_offset + position, memoryview(blank))


class SlaveProgress:
    """The log of one slave, as far as the master knows it.

    Attributes:
        sent: Log offset after the last frame.
        held: Log offset after what the slave has reported.
    """

    def __init__(self, requested: int) -> None:
        self.sent = self.held = requested

    def begin(self, log_offset: int) -> None:
        """Note where its log is continued: an empty one where the broker's log begins."""
        assert self.held in (0, log_offset)
        self.sent = log_offset

    def sending(self, frame: Frame) -> None:
        """Note a frame that is about to be sent."""
        assert frame.log_offset == self.sent, "a slave refuses a frame that does not continue"
        self.sent = frame.end

    def reported(self, log_offset: int) -> None:
        """Note a report.

        Raises:
            SlaveError: The slave claims what it was never sent, or has less than before. Then its
                log is not this one: RocketMQ's master would believe that everything is replicated.
        """
        if not self.held <= log_offset <= self.sent:
            raise SlaveError(
                f"it reports log offset {log_offset}; expected {self.held} to {self.sent}"
            )
        self.held = log_offset
