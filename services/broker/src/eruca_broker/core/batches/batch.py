"""A batch of records on its way into the log: checked whole, then stamped, never half.

The producer has laid the records out as the log stores them and left the broker's fields zero
(``eruca.contract.wire``). :func:`check_batch` proves that every byte is where it must be, so that
nothing that recovery would refuse can enter the log; :meth:`Batch.stamp` then writes queue
offsets, log offsets, store time and hosts into the very buffer that is written to disk.

Which way is taken is a matter of speed alone, and all mean the same: a few records are looked at
one by one (:mod:`.record_proof`), many that are alike (:mod:`.alike_records`) or not
(:mod:`.batch_columns`) together.

Source: RocketMQ 5.3, ``MessageExtEncoder``, ``CommitLog.DefaultAppendMessageCallback``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np

from eruca.contract.errors import MalformedBatchError
from eruca.contract.records import HOST_BITS, V1_TOPIC_SIZE_MAX, Host, RecordLayout, layout_of
from eruca.contract.wire import BATCH_PREAMBLE, MalformedRecordsError, batch_extent, batch_sizes
from eruca_broker.core.batches.alike_records import prove_alike, prove_uniform
from eruca_broker.core.batches.batch_columns import LooseTexts, prove_columns
from eruca_broker.core.batches.record_proof import (
    PROPERTIES_HEAD_SIZE,
    WRONG_SUM,
    Expected,
    expected_of,
    prove_each,
)
from eruca_broker.core.properties.shapes import AlikeTexts
from eruca_broker.core.properties.texts import Int64Array

NUMPY_COUNT_MIN: Final = 24  # messages from which numpy is faster than the loop; measured
_STRIDED_COUNT_MIN: Final = 6  # … if only to stamp records of one size

_SYS_FLAG_AT: Final = RecordLayout.SYS_FLAG
_STAMP_OFFSETS: Final = struct.Struct(">qq")
_TIMESTAMP: Final = struct.Struct(">q")

Sizes: TypeAlias = Sequence[int] | Int64Array
Texts: TypeAlias = AlikeTexts | LooseTexts | list[bytes]
"""Properties: of many records together, of few each by itself."""


class Batch:
    """Whole, checked records for one queue; the broker's fields are still to be stamped.

    Attributes:
        buffer: ``buffer[start : start + size]`` holds the records back to back.
        sizes: Of each record.
        starts: Where each lies, counted from the first one.
        record_size: What all sizes are; 0 where they differ.
        texts: The records' properties.
    """

    __slots__ = (
        "buffer",
        "count",
        "layout",
        "queue_id",
        "record_size",
        "size",
        "sizes",
        "start",
        "starts",
        "texts",
        "topic",
    )

    def __init__(  # noqa: PLR0917 - as in the class's own order of slots
        self,
        topic: str,
        queue_id: int,
        buffer: bytearray,
        start: int,
        sizes: Sizes,
        layout: RecordLayout,
        texts: Texts,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.buffer = buffer
        self.start = start
        self.size = len(buffer) - start
        self.count = count = len(sizes)
        self.layout = layout
        self.sizes = sizes
        self.texts = texts
        self.record_size = 0
        self.starts: Sizes
        if count == 1:
            self.record_size, self.starts = self.size, (0,)
        elif isinstance(sizes, np.ndarray):
            self.starts = sizes.cumsum() - sizes
        elif sizes[0] * count == self.size and sizes.count(sizes[0]) == count:
            self.record_size = sizes[0]
            self.starts = range(0, self.size, sizes[0])
        else:
            self.starts = list(accumulate(sizes[:-1], initial=0))

    @property
    def records(self) -> memoryview:
        """The records' bytes, as they go into the log."""
        return memoryview(self.buffer)[self.start :]

    def stamp(
        self,
        *,
        queue_offset: int,
        log_offset: int,
        store_timestamp: int,
        store_host: Host,
        born_host: Host | None,
    ) -> None:
        """Write the broker's fields into every record.

        Args:
            queue_offset: The first message's; the others follow without a gap.
            log_offset: Where the first record goes.
            store_timestamp: ms since the epoch; the same for all of them.
            store_host: The broker's; of the family the layout has room for.
            born_host: The peer's. Left out where it is None or of the other family.
        """
        layout = self.layout
        common = _stored_part(store_timestamp, store_host)
        common_at = layout.store_timestamp
        assert common_at + len(common) == layout.reconsume_times
        if born_host is not None:
            born_bytes = _host_bytes(born_host)
            if len(born_bytes) == layout.born_host_size:
                common = born_bytes + common  # neighbours
                common_at = RecordLayout.BORN_HOST
        if self.record_size and self.count >= _STRIDED_COUNT_MIN:
            self._stamp_strided(queue_offset, log_offset, common, common_at)
        elif isinstance(self.starts, np.ndarray):
            self._stamp_scattered(self.starts, queue_offset, log_offset, common, common_at)
        else:
            buffer, common_end = self.buffer, common_at + len(common)
            position = self.start
            for size in self.sizes:
                _STAMP_OFFSETS.pack_into(
                    buffer, position + RecordLayout.QUEUE_OFFSET, queue_offset, log_offset
                )
                buffer[position + common_at : position + common_end] = common
                queue_offset += 1
                log_offset += size
                position += size

    def _stamp_strided(
        self, queue_offset: int, log_offset: int, common: bytes, common_at: int
    ) -> None:
        count, buffer, start, step = self.count, self.buffer, self.start, (self.record_size,)
        queue_offsets = np.ndarray((count,), ">i8", buffer, start + RecordLayout.QUEUE_OFFSET, step)
        queue_offsets[:] = np.arange(queue_offset, queue_offset + count)
        log_offsets = np.ndarray((count,), ">i8", buffer, start + RecordLayout.LOG_OFFSET, step)
        log_offsets[:] = np.arange(log_offset, log_offset + self.size, self.record_size)
        np.ndarray((count,), f"V{len(common)}", buffer, start + common_at, step).fill(common)

    def _stamp_scattered(
        self,
        starts: Int64Array,
        queue_offset: int,
        log_offset: int,
        common: bytes,
        common_at: int,
    ) -> None:
        positions = starts + self.start
        words = np.ndarray((len(self.buffer) - 7,), ">i8", self.buffer, strides=(1,))
        words[positions + RecordLayout.QUEUE_OFFSET] = np.arange(
            queue_offset, queue_offset + self.count
        )
        words[positions + RecordLayout.LOG_OFFSET] = starts + log_offset
        places = len(self.buffer) - len(common) + 1
        stretches = np.ndarray((places,), f"V{len(common)}", self.buffer, strides=(1,))
        stretches[positions + common_at] = np.void(common)


def check_batch(buffer: bytearray, *, topic: str, queue_id: int, store_host: Host) -> Batch:
    """Return the batch in *buffer*, which holds a request's body and is the batch's from now on.

    Raises:
        MalformedBatchError: A size, magic, CRC, topic, queue or flag is wrong, or the parts of a
            record do not add up. Nothing has been changed.
        TooLargeError: A body or the properties of a message exceed their limit.
    """
    if len(topic) > V1_TOPIC_SIZE_MAX:
        raise MalformedBatchError(
            f"records of topics longer than {V1_TOPIC_SIZE_MAX} characters are the broker's own"
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
            fix="lay the records out for the store host that the topic's route names",
        )
    sizes: Sizes
    texts: Texts
    if count < NUMPY_COUNT_MIN:
        sizes = batch_sizes(buffer, count)
        texts = prove_each(buffer, start, sizes, expected)
    else:
        sizes, texts = _prove_many(buffer, start, count, expected)
    return Batch(topic, queue_id, buffer, start, sizes, expected.layout, texts)


def batch_of_records(
    topic: str, queue_id: int, records: Sequence[bytes], texts: list[bytes] | None = None
) -> Batch:
    """Return the batch of *records* that this broker has encoded itself, which are sound.

    Their properties, *texts*, are found in them where they are not given.
    """
    layout = layout_of(int.from_bytes(records[0][_SYS_FLAG_AT : _SYS_FLAG_AT + 4]))
    sizes = list(map(len, records))
    if texts is None:
        texts = _texts_of(records, topic, layout)
    return Batch(topic, queue_id, bytearray().join(records), 0, sizes, layout, texts)


def _texts_of(records: Sequence[bytes], topic: str, layout: RecordLayout) -> list[bytes]:
    body_size_at, body_at = layout.body_size, layout.body
    size_behind = (2 if len(topic) > V1_TOPIC_SIZE_MAX else 1) + len(topic) + PROPERTIES_HEAD_SIZE
    return [
        record[body_at + int.from_bytes(record[body_size_at:body_at]) + size_behind :]
        for record in records
    ]


def _prove_many(
    buffer: bytearray, start: int, count: int, expected: Expected
) -> tuple[Sizes, Texts]:
    """Prove the records; return their sizes and their properties."""
    column = buffer[BATCH_PREAMBLE.size : start]
    if column == column[:4] * count:
        size = int.from_bytes(column[:4])
        if start + size * count != len(buffer):
            raise MalformedBatchError(WRONG_SUM)
        texts: Texts | None = prove_uniform(buffer, start, count, size, expected)
        if texts is None:
            texts = prove_columns(buffer, start, np.full(count, size), expected)
        return [size] * count, texts
    sizes = np.frombuffer(column, ">u4").astype(np.int64)
    if start + int(sizes.sum()) != len(buffer) or int(sizes.min()) < expected.size_min:
        raise MalformedBatchError(WRONG_SUM)
    texts = prove_alike(buffer, start, sizes, expected)
    return sizes, texts or prove_columns(buffer, start, sizes, expected)


@lru_cache(maxsize=16)
def _stored_part(store_timestamp: int, store_host: Host) -> bytes:
    """Return store time and host, as all that is accepted in one tick has them."""
    return _TIMESTAMP.pack(store_timestamp) + _host_bytes(store_host)


@lru_cache(maxsize=4096)
def _host_bytes(host: Host) -> bytes:
    return host.encode()
