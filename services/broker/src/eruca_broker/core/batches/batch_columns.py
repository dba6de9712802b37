"""Many records of any kind, proved together, a field of all of them at a time.

What remains when :mod:`.alike_records` does not apply: texts of several sizes, flags that differ,
and batches that are not sound. The first record that fails is named, as it would be by
:func:`~eruca_broker.core.batches.record_proof.prove_each`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eruca.contract.limits import BODY_SIZE_MAX, PROPERTIES_SIZE_MAX
from eruca.contract.records import BODY_CRC_MASK, HOST_BITS, MAGIC_V1, RecordLayout
from eruca_broker.core.batches.alike_records import crcs_of
from eruca_broker.core.batches.delayed_records import refuse_any_delayed
from eruca_broker.core.batches.record_proof import (
    BROKERS_FIELDS,
    ENDS_IN_ZERO,
    NO_DATE,
    PROPERTIES_HEAD_SIZE,
    SYS_FLAGS_REFUSED,
    TIMESTAMP_MAX,
    WRONG_CRC,
    WRONG_FLAG,
    WRONG_HEAD,
    WRONG_PARTS,
    Expected,
    body_size_fault,
    fault,
)
from eruca_broker.core.properties.texts import Int64Array, rows_at


class LooseTexts(NamedTuple):
    """Where the properties of some records lie in their buffer."""

    starts: Int64Array
    sizes: Int64Array


def prove_columns(
    buffer: bytearray, start: int, sizes: Int64Array, expected: Expected
) -> LooseTexts:
    """Prove records that fill the buffer from *start* on; return where their properties lie.

    Raises:
        MalformedBatchError: A record is not sound.
        TooLargeError: A body exceeds its limit.
    """
    ends = sizes.cumsum() + start
    positions = ends - sizes
    layout = expected.layout
    head = rows_at(buffer, positions, layout.body).view(_head_dtype(layout))[:, 0]
    body_sizes = _prove_heads(head, sizes, expected)
    properties_sizes = sizes - expected.size_min - body_sizes
    _require((properties_sizes >= 0) & (properties_sizes <= PROPERTIES_SIZE_MAX), WRONG_PARTS)
    topic_size = len(expected.topic_part)
    bodies_at = positions + layout.body
    topics_at = bodies_at + body_sizes
    parts = rows_at(buffer, topics_at, topic_size + PROPERTIES_HEAD_SIZE)
    is_ours = parts[:, :topic_size] == np.frombuffer(expected.topic_part, np.uint8)
    _require(is_ours.all(axis=1), f"its topic is not the request's, {expected.topic!r}")
    _require(parts[:, topic_size:].view(">u2")[:, 0] == properties_sizes, WRONG_PARTS)
    last_bytes = np.frombuffer(buffer, np.uint8)[ends - 1]
    _require((last_bytes != 0) | (properties_sizes == 0), ENDS_IN_ZERO)
    refuse_any_delayed(buffer, ends - properties_sizes, properties_sizes)
    crcs = np.fromiter(crcs_of(buffer, bodies_at, topics_at), np.int64, len(sizes))
    _require(crcs & BODY_CRC_MASK == head["crc"], WRONG_CRC)
    return LooseTexts(ends - properties_sizes, properties_sizes)


def _prove_heads(head: NDArray[Any], sizes: Int64Array, expected: Expected) -> Int64Array:
    """Prove the fixed fields; return the bodies' sizes."""
    _require((head["size"] == sizes) & (head["magic"] == MAGIC_V1), WRONG_HEAD)
    _require(head["queue_id"] == expected.queue_id, f"its queue is not {expected.queue_id}")
    flags = head["sys_flag"]
    wrong_bits = flags & SYS_FLAGS_REFUSED | (flags & HOST_BITS) ^ expected.host_bits
    _require(wrong_bits == 0, WRONG_FLAG)
    born = head["born_timestamp"]
    _require((born >= 0) & (born <= TIMESTAMP_MAX), NO_DATE)
    _require((head["reconsume_times"] | head["prepared_offset"]) == 0, BROKERS_FIELDS)
    body_sizes: Int64Array = head["body_size"].astype(np.int64)
    fits = (body_sizes > 0) & (body_sizes <= BODY_SIZE_MAX)
    if not fits.all():
        index = int(np.argmin(fits))
        raise body_size_fault(index, int(body_sizes[index]))
    return body_sizes


def _require(holds: NDArray[np.bool_], complaint: str) -> None:
    if not holds.all():
        raise fault(int(np.argmin(holds)), complaint)


@lru_cache(maxsize=8)
def _head_dtype(layout: RecordLayout) -> np.dtype[np.void]:
    fields = {
        "size": (">i4", 0),
        "magic": (">u4", 4),
        "crc": (">i4", 8),
        "queue_id": (">i4", RecordLayout.QUEUE_ID),
        "sys_flag": (">i4", RecordLayout.SYS_FLAG),
        "born_timestamp": (">i8", RecordLayout.BORN_TIMESTAMP),
        "reconsume_times": (">i4", layout.reconsume_times),
        "prepared_offset": (">i8", layout.prepared_offset),
        "body_size": (">i4", layout.body_size),
    }
    return np.dtype(
        {
            "names": list(fields),
            "formats": [kind for kind, _ in fields.values()],
            "offsets": [offset for _, offset in fields.values()],
            "itemsize": layout.body,
        }
    )
