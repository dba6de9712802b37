"""A batch of records on its way into the log: verified as a whole, then stamped.

The producer has encoded the records as the log stores them, with the broker's fields left zero
(``eruca.contract.wire``). :func:`check_batch` verifies every byte, so that nothing enters the log
that recovery would refuse. Then :meth:`Batch.stamp` writes queue offsets, log offsets, store time
and hosts into the same buffer, which is written to disk. Last it writes each record's checksum,
which covers them.

Both loops are compiled (``native/records.c``). If a record is not plainly valid,
:mod:`.record_proof` examines it again and names the fault.

Source: RocketMQ 5.3, ``MessageExtEncoder``, ``CommitLog.DefaultAppendMessageCallback``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from eruca.contract.errors import MalformedBatchError
from eruca.contract.records import HOST_BITS, V1_TOPIC_SIZE_MAX, Host, RecordLayout, layout_of
from eruca.contract.wire import MalformedRecordsError, batch_extent, batch_sizes
from eruca_broker.core.batches.record_proof import (
    WRONG_SUM,
    Expected,
    expected_of,
    prove_record,
)
from eruca_broker.core.native.library import (
    CRC32_AT,
    address_of,
    enter_records,
    prove_records,
    read_records,
    stamp_records,
)
from eruca_broker.core.properties.found import (
    TABLE_ALIGNMENT,
    FoundProperties,
    empty_table,
    prefix_hash,
)

_SYS_FLAG_AT: Final = RecordLayout.SYS_FLAG
SIZE_BYTES: Final = 4  # of each record in the column before the first one
_PADDINGS: Final = tuple(bytes(size) for size in range(TABLE_ALIGNMENT))
_TIMESTAMP: Final = struct.Struct(">q")


class Batch:
    """Verified records for one queue; the broker's fields are not stamped yet.

    Attributes:
        buffer: ``buffer[start : start + size]`` holds the records back to back; never resized.
            What follows them belongs to others. A bytearray until they are stamped.
        at: Memory address of the records' first byte.
        found: Ends, tag codes and keys of the records; a key's number is that of its record's
            start.
    """

    __slots__ = ("at", "buffer", "count", "found", "layout", "queue_id", "size", "start", "topic")

    def __init__(  # noqa: PLR0917 - as in the class's own order of slots
        self,
        topic: str,
        queue_id: int,
        buffer: bytearray | memoryview,
        start: int,
        layout: RecordLayout,
        count: int,
        size: int | None = None,
        *,
        found: FoundProperties | None = None,
        at: int = 0,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.buffer = buffer
        self.start = start
        self.size = len(buffer) - start if size is None else size
        self.count = count
        self.layout = layout
        self.found = FoundProperties(count) if found is None else found
        self.at = at or address_of(buffer, start)

    @property
    def records(self) -> memoryview:
        """Return the records' bytes, as they go into the log."""
        return memoryview(self.buffer)[self.start : self.start + self.size]

    @property
    def starts(self) -> list[int]:
        """Return the position of each record, relative to the first one."""
        return [0] if self.count == 1 else [0, *self.found.ends[:-1].tolist()]

    @property
    def sizes(self) -> list[int]:
        """Return the size of each record in bytes."""
        starts = self.starts
        return [end - start for start, end in zip(starts, [*starts[1:], self.size], strict=True)]

    def properties_of(self, row: int) -> bytes:
        """Return one record's properties."""
        begin, end = self.found.properties_extent(row)
        return bytes(self.buffer[self.start + begin : self.start + end])

    def stamp(
        self,
        *,
        queue_offset: int,
        log_offset: int,
        store_timestamp: int,
        store_host: Host,
        born_host: Host | None,
    ) -> bytearray:
        """Write the broker's fields into every record; return their consume queue's entries.

        Args:
            queue_offset: Offset of the first message; the others follow without a gap.
            log_offset: Log offset of the first record.
            store_timestamp: ms since the epoch; the same for all records.
            store_host: The broker's address, of the family for which the layout has room.
            born_host: The peer's address; left out if its family does not fit the layout. None: the
                records already contain theirs.
        """
        assert self.found.count == self.count, "not every record was verified"
        assert self.buffer.__class__ is bytearray, "stamped records are never stamped again"
        layout = self.layout
        common = _stored_part(store_timestamp, store_host)
        common_at = layout.store_timestamp
        assert common_at + len(common) == layout.reconsume_times
        if born_host is not None:
            born_bytes = _host_bytes(born_host)
            if len(born_bytes) == layout.born_host_size:
                common = born_bytes + common  # neighbours
                common_at = RecordLayout.BORN_HOST
        found = self.found
        stamp_records(
            *(self.at, self.count, queue_offset, log_offset, common, common_at, len(common)),
            *(found.at, found.entries_at, CRC32_AT),
        )
        return found.entries


def check_batch(buffer: bytearray, *, topic: str, queue_id: int, store_host: Host) -> Batch:
    """Return the batch in *buffer*: a request's body, which belongs to the batch from now on.

    Raises:
        MalformedBatchError: A size, magic, CRC, topic, queue or flag is wrong, or the parts of a
            record do not add up. Nothing has been changed.
        TooLargeError: A body or the properties of a message exceed their limit.
        ValidationError: A message could not be named later: its texts contain U+0000, or its unique
            id consists of dots or contains a blank.
    """
    batch, expected = begun_batch(buffer, topic=topic, queue_id=queue_id, store_host=store_host)
    found, at, count = batch.found, batch.at, batch.count
    column_at = at - SIZE_BYTES * count
    sizes: Sequence[int] = ()
    while prove_records(column_at, at, batch.size, count, expected.at, found.at) < count:
        sizes = sizes or sizes_of(batch)
        _prove_next(batch, sizes, expected)
    return batch


def begun_batch(
    buffer: bytearray, *, topic: str, queue_id: int, store_host: Host
) -> tuple[Batch, Expected]:
    """Return the batch in *buffer*, of which only the preamble is verified, and what must follow.

    Raises:
        MalformedBatchError: The preamble is invalid, or the first record of another layout.
    """
    if len(topic) > V1_TOPIC_SIZE_MAX:
        raise MalformedBatchError(
            f"the topic has {len(topic)} characters; records may have at most {V1_TOPIC_SIZE_MAX}"
        )
    try:
        count, start = batch_extent(buffer)
    except MalformedRecordsError as error:
        raise MalformedBatchError(str(error)) from error
    sys_flag = int.from_bytes(buffer[start + _SYS_FLAG_AT : start + _SYS_FLAG_AT + 4])
    expected = expected_of(topic, queue_id, sys_flag & HOST_BITS)
    if expected.layout.store_host_size != len(store_host.address) + 4:
        family = "IPv6" if store_host.is_v6 else "IPv4"
        raise MalformedBatchError(
            f"the records leave no room for this broker's {family} store host",
            fix="encode the records for the store host in the topic's route",
        )
    return Batch(topic, queue_id, buffer, start, expected.layout, count), expected


def batch_of_records(topic: str, queue_id: int, records: Sequence[bytes]) -> Batch:
    """Return the batch of *records*, which this broker encoded itself and which are valid."""
    if len(records) > 1:
        return read_batch(topic, queue_id, bytearray().join(records), len(records))
    [record] = records
    size = len(record)
    # One allocation and one address for record and table: most groups consist of such batches.
    buffer = bytearray().join((record, _PADDINGS[-size % TABLE_ALIGNMENT], empty_table(1)))
    at = address_of(buffer)
    layout = layout_of(int.from_bytes(record[_SYS_FLAG_AT : _SYS_FLAG_AT + 4]))
    found = FoundProperties.at_end(buffer, at, 1)
    batch = Batch(topic, queue_id, buffer, 0, layout, 1, size, found=found, at=at)
    _read_properties(batch)
    return batch


def read_batch(topic: str, queue_id: int, buffer: bytearray, count: int) -> Batch:
    """Return the batch in *buffer*, which holds *count* valid records and nothing else."""
    layout = layout_of(int.from_bytes(buffer[_SYS_FLAG_AT : _SYS_FLAG_AT + 4]))
    batch = Batch(topic, queue_id, buffer, 0, layout, count)
    _read_properties(batch)
    return batch


def read_stored(
    topic: str, queue_id: int, records: memoryview, at: int, *, layout: RecordLayout, count: int
) -> Batch:
    """Return the batch of *records*, which are valid and are not copied.

    Args:
        topic: Their topic.
        queue_id: Their queue.
        records: Their bytes, which may be read-only: the batch cannot be stamped.
        at: Memory address of the first byte.
        layout: Of each of them.
        count: Their number.
    """
    batch = Batch(topic, queue_id, records, 0, layout, count, at=at)
    _read_properties(batch)
    return batch


def entries_of(batch: Batch, log_offset: int) -> bytearray:
    """Return the consume queue's entries of stored records, which begin at *log_offset*."""
    assert batch.found.count == batch.count, "not every record was read"
    found = batch.found
    enter_records(batch.count, log_offset, found.at, found.entries_at)
    return found.entries


def _read_properties(batch: Batch) -> None:
    """Read the properties of valid records."""
    found, count, body_at = batch.found, batch.count, batch.layout.body
    prefix = prefix_hash(batch.topic)
    while (row := read_records(batch.at, count, body_at, prefix, found.at)) < count:
        _, end = found.properties_extent(row)  # which it read before it stopped
        text = batch.properties_of(row)
        found.add(text, topic=batch.topic, record=found.start_of(row), end=end)


def sizes_of(batch: Batch) -> Sequence[int]:
    """Return the sizes in the column of a batch that is being verified.

    Raises:
        MalformedBatchError: They do not add up.
    """
    sizes = batch_sizes(batch.buffer, batch.count)
    if sum(sizes) != batch.size:
        raise MalformedBatchError(WRONG_SUM)
    return sizes


def _prove_next(batch: Batch, sizes: Sequence[int], expected: Expected) -> None:
    """Verify the record that was not plainly valid, or raise an error that names the fault."""
    found, buffer = batch.found, batch.buffer
    assert isinstance(buffer, bytearray), "only records that are not stamped are verified"
    row = found.count
    start = found.start_of(row)
    text = prove_record(buffer, batch.start + start, row, sizes[row], expected)
    found.add(text, topic=batch.topic, record=start, end=start + sizes[row])


@lru_cache(maxsize=16)
def _stored_part(store_timestamp: int, store_host: Host) -> bytes:
    """Return store time and host, the same for everything accepted in one tick."""
    return _TIMESTAMP.pack(store_timestamp) + _host_bytes(store_host)


@lru_cache(maxsize=4096)
def _host_bytes(host: Host) -> bytes:
    return host.encode()
