"""``application/vnd.eruca.records``: batches of log records on the wire.

Both directions carry the log's own bytes behind a small preamble, so neither side touches single
messages. Numbers are big-endian, sizes in bytes.

A batch (request body of ``POST …/queues/{queue_id}/records``)::

    magic    4s   b"ERB1"
    count    u32  messages, 1 … BATCH_COUNT_MAX
    size     u32  bytes of all records
    reserved u32  0
    sizes    u32[count]   each record's size
    records  size bytes

A batch that is sent ahead of the answers to earlier ones has the magic ``b"ERB2"``, and between
*reserved* and *sizes* its position in its lane::

    lane     8s   random; one for each ordered stream of batches to one queue
    epoch    u32  the lane's; a later one follows each failure
    sequence u32  in the epoch: 0, 1, 2 …

The broker stores it only if it has stored the one before it (409 ``lane-gap``). A broker that does
not know this form refuses it as malformed.

A batch whose records may request a delivery time has the magic ``b"ERB4"``. A record requests it by
one of RocketMQ's properties, which should be its last one before the room for its checksum:
TIMER_DELIVER_MS (since the epoch), TIMER_DELAY_MS (by the broker's clock), TIMER_DELAY_SEC or DELAY
(a level). The broker delivers it at that time without the property, and at once if it requests
none. A batch of another form with such a record is refused. A broker that does not know this form
refuses it as malformed.

The producer leaves QUEUEOFFSET, PHYSICALOFFSET, STORETIMESTAMP and STOREHOST zero; the broker
stamps them. BORNHOST is zero as well: the broker stamps the peer's address. The store host's
family (SYSFLAG) must be the broker's, which the topic's route contains. Properties end in the 20
bytes ``__CRC32#`` U+0001 ``0000000000`` U+0002. After stamping the record, the broker writes the
whole record's checksum there. It refuses (400) a batch with a record that lacks this room.

A pull (answer of one queue)::

    magic    4s   b"ERP1"
    count    u32
    size     u32
    status   u32  index into PullStatus
    next     i64  queue offset to pull from next
    min      i64  first queue offset that retention has kept
    max      i64  queue offset of the next message to be stored
    sizes    u32[count]
    records  size bytes

A pull ends before a damaged message. A pull that begins at one has status ``damaged`` and a count
of 0. The message's offset is *next* - 1. Instead of records, *size* bytes of UTF-8 give its place
and its fault.

A pull of many queues: ``b"ERM1"``, u32 section count, then per section u32 index into the
request's list of queues and u32 size of the pull block that follows. It omits queues without news.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

from eruca.contract.limits import BATCH_COUNT_MAX, RECORDS_SIZE_MAX
from eruca.contract.records import RECORD_SIZE_MIN, Buffer

JSON_MEDIA_TYPE: Final = "application/json"
RECORDS_MEDIA_TYPE: Final = "application/vnd.eruca.records"
LOG_MEDIA_TYPE: Final = "application/vnd.eruca.log"
OCTETS_MEDIA_TYPE: Final = "application/octet-stream"  # one message's body, as it is
NEXT_OFFSET_HEADER: Final = "eruca-next-offset"  # of the log feed: the next offset to read
DAMAGED_OFFSETS_HEADER: Final = "eruca-damaged-offsets"  # … of its damaged records: "17,42"
MIN_OFFSET_HEADER: Final = "eruca-min-offset"
MAX_OFFSET_HEADER: Final = "eruca-max-offset"
EPOCH_HEADER: Final = "eruca-epoch"  # of the records of an answer
BEHIND_SECONDS_HEADER: Final = "eruca-behind-seconds"  # since a standby had everything
CONFIRMED_HEADER: Final = "eruca-confirmed"  # end of what a standby, or a run, knows confirmed
STALE_HEADER: Final = "eruca-stale"  # "true": the master is not sure that it still is the master

BATCH_MAGIC: Final = b"ERB1"
LANE_BATCH_MAGIC: Final = b"ERB2"
DELAYED_BATCH_MAGIC: Final = b"ERB4"
PULL_MAGIC: Final = b"ERP1"
MULTI_PULL_MAGIC: Final = b"ERM1"
BATCH_PREAMBLE: Final = struct.Struct(">4sIII")
LANE_POSITION: Final = struct.Struct(">8sII")
PULL_PREAMBLE: Final = struct.Struct(">4sIIIqqq")
MULTI_PULL_PREAMBLE: Final = struct.Struct(">4sI")
MULTI_PULL_SECTION: Final = struct.Struct(">II")

LANE_NUMBER_MAX: Final = 2**32 - 1  # of an epoch or a sequence

BATCH_BODY_SIZE_MAX: Final = (
    BATCH_PREAMBLE.size + LANE_POSITION.size + 4 * BATCH_COUNT_MAX + RECORDS_SIZE_MAX
)


# By magic.
_POSITION_SIZES: Final = {
    BATCH_MAGIC: 0,
    LANE_BATCH_MAGIC: LANE_POSITION.size,
    DELAYED_BATCH_MAGIC: 0,
}


class MalformedRecordsError(ValueError):
    """A body of the records media type does not match its preamble."""


class PullStatus(StrEnum):
    """Status of a pull; every status but FOUND comes without messages.

    The order of the members is part of the wire format: the preamble holds the index.
    """

    FOUND = "found"
    NO_NEW_MESSAGE = "no_new_message"  # at the end of the queue; the only status that is held
    NO_MATCHED_MESSAGE = "no_matched_message"  # the filter passed nothing up to next
    OFFSET_TOO_SMALL = "offset_too_small"  # retention has deleted it; next is the first one kept
    OFFSET_TOO_LARGE = "offset_too_large"  # beyond the end; next is the end
    DAMAGED = "damaged"  # the message before next is damaged


_STATUSES: Final = tuple(PullStatus)
_STATUS_INDEX: Final = {status: index for index, status in enumerate(_STATUSES)}
_OF_OTHERS: Final = (CONFIRMED_HEADER, STALE_HEADER)  # in answers of other replicas


class LanePosition(NamedTuple):
    """The position of a batch in its lane."""

    lane: bytes  # 8 bytes
    epoch: int
    sequence: int


class PulledRecords(NamedTuple):
    """One queue's part of a pull, with only the preamble decoded."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    sizes: Sequence[int]  # bytes of each record
    records: memoryview  # the records, back to back; for status DAMAGED, the fault
    start: int  # of the records in the answer

    @property
    def damage(self) -> str:
        """The damaged message's fault, if the status is ``damaged``."""
        assert self.status is PullStatus.DAMAGED
        return str(self.records, "utf-8", "replace")


def is_masters_word(headers: Container[str]) -> bool:
    """Tell by an answer's *headers* whether the master gave it, and is certain of its term.

    Another replica may not show yet what has been acknowledged, and may lack what the master has.
    So by its word no reader passes messages or goes back.
    """
    return not any(header in headers for header in _OF_OTHERS)


def encode_batch(records: Sequence[bytes]) -> bytes:
    """Return the request body for encoded *records*."""
    sizes = list(map(len, records))
    head = BATCH_PREAMBLE.pack(BATCH_MAGIC, len(sizes), sum(sizes), 0)
    return b"".join((head, struct.pack(f">{len(sizes)}I", *sizes), *records))


def with_position(body: bytes, position: LanePosition) -> tuple[Buffer, ...]:
    """Return the parts of a request body that is *body* at a position of its lane."""
    view = memoryview(body)
    rest = view[len(LANE_BATCH_MAGIC) : BATCH_PREAMBLE.size]
    head = b"".join((LANE_BATCH_MAGIC, rest, LANE_POSITION.pack(*position)))
    return head, view[BATCH_PREAMBLE.size :]


def with_delays(body: bytes) -> tuple[Buffer, ...]:
    """Return the parts of a request body that is *body*, whose records may request delays."""
    return DELAYED_BATCH_MAGIC, memoryview(body)[len(DELAYED_BATCH_MAGIC) :]


def batch_position(body: Buffer) -> LanePosition | None:
    """Return a batch's position in its lane; None: it has none, or is malformed."""
    if body[:4] != LANE_BATCH_MAGIC or len(body) < BATCH_PREAMBLE.size + LANE_POSITION.size:
        return None
    return LanePosition._make(LANE_POSITION.unpack_from(body, BATCH_PREAMBLE.size))


def batch_extent(body: Buffer) -> tuple[int, int]:
    """Return a batch's message count and the start of its records.

    Raises:
        MalformedRecordsError: The preamble is truncated, of another format, beyond a limit, or
            does not account for every byte of *body*.
    """
    total = len(body)
    if total < BATCH_PREAMBLE.size:
        raise MalformedRecordsError(f"{total} bytes are too few for a batch's preamble")
    magic, count, size, reserved = BATCH_PREAMBLE.unpack_from(body)
    if magic not in _POSITION_SIZES or reserved:
        raise MalformedRecordsError(
            f"expected {BATCH_MAGIC!r}, {LANE_BATCH_MAGIC!r} or {DELAYED_BATCH_MAGIC!r} and "
            f"reserved 0, found {magic!r} and {reserved}"
        )
    if not 1 <= count <= BATCH_COUNT_MAX:
        raise MalformedRecordsError(f"expected 1 to {BATCH_COUNT_MAX} messages, found {count}")
    start = BATCH_PREAMBLE.size + _POSITION_SIZES[magic] + 4 * count
    if start + size != total or size < count * RECORD_SIZE_MIN:
        raise MalformedRecordsError(
            f"{count} sizes and {size} bytes of records do not make a body of {total} bytes"
        )
    return count, start


def batch_sizes(body: Buffer, count: int) -> tuple[int, ...]:
    """Return the records' sizes in a batch that :func:`batch_extent` has accepted."""
    position_size = _POSITION_SIZES[bytes(body[:4])]
    return _column(count).unpack_from(body, BATCH_PREAMBLE.size + position_size)


def encode_pull_head(
    status: PullStatus,
    *,
    next_offset: int,
    min_offset: int,
    max_offset: int,
    sizes: bytes = b"",
    records_size: int = 0,
) -> bytes:
    """Return one queue's preamble and sizes; *sizes* is already big-endian."""
    head = PULL_PREAMBLE.pack(
        PULL_MAGIC,
        len(sizes) // 4,
        records_size,
        _STATUS_INDEX[status],
        next_offset,
        min_offset,
        max_offset,
    )
    return head + sizes


def decode_pull(body: Buffer, at: int = 0) -> PulledRecords:
    """Return one queue's answer, which starts at *at* in *body*.

    Raises:
        MalformedRecordsError: The body is truncated or not a pull.
    """
    view = memoryview(body)[at:]
    if len(view) < PULL_PREAMBLE.size:
        raise MalformedRecordsError(f"{len(view)} bytes are too few for a pull's preamble")
    magic, count, size, status, following, lowest, highest = PULL_PREAMBLE.unpack_from(view)
    start = PULL_PREAMBLE.size + 4 * count
    if magic != PULL_MAGIC or status >= len(_STATUSES) or start + size != len(view):
        raise MalformedRecordsError("the body is not a complete pull")
    sizes = struct.unpack_from(f">{count}I", view, PULL_PREAMBLE.size)
    if sum(sizes) != size and _STATUSES[status] is not PullStatus.DAMAGED:
        raise MalformedRecordsError("the sizes do not add up to the records")
    return PulledRecords(
        _STATUSES[status], following, lowest, highest, sizes, view[start:], at + start
    )


def encode_multi_pull_heads(blocks: Iterable[tuple[int, int]]) -> tuple[bytes, list[bytes]]:
    """Return the preamble, and the head of the block of each (queue index, block size)."""
    heads = [MULTI_PULL_SECTION.pack(index, size) for index, size in blocks]
    return MULTI_PULL_PREAMBLE.pack(MULTI_PULL_MAGIC, len(heads)), heads


def decode_multi_pull(body: Buffer) -> list[tuple[int, PulledRecords]]:
    """Return (index into the request's queues, its answer) for each section.

    Raises:
        MalformedRecordsError: The body is truncated or not a pull of many queues.
    """
    view = memoryview(body)
    if len(view) < MULTI_PULL_PREAMBLE.size:
        raise MalformedRecordsError("too few bytes for a multi-queue pull")
    magic, count = MULTI_PULL_PREAMBLE.unpack_from(view)
    if magic != MULTI_PULL_MAGIC:
        raise MalformedRecordsError(f"expected {MULTI_PULL_MAGIC!r}, found {magic!r}")
    sections = []
    position = MULTI_PULL_PREAMBLE.size
    for _ in range(count):
        if position + MULTI_PULL_SECTION.size > len(view):
            raise MalformedRecordsError("a section is truncated")
        index, size = MULTI_PULL_SECTION.unpack_from(view, position)
        position += MULTI_PULL_SECTION.size
        sections.append((index, decode_pull(view[: position + size], position)))
        position += size
    if position != len(view):
        raise MalformedRecordsError("bytes follow the last section")
    return sections


@lru_cache(maxsize=64)
def _column(count: int) -> struct.Struct:
    return struct.Struct(f">{count}I")


def record_starts(sizes: Sequence[int]) -> list[int]:
    """Return the start of each record among the records, from their sizes."""
    return list(accumulate(sizes[:-1], initial=0)) if sizes else []
