"""Convert records into Arrow record batches, without Python code per message.

The columns of a batch share intermediate results: the fields,
the properties' texts, the bodies. Each of these is computed when the first column needs it, so
columns that are not requested cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eruca.contract.properties import (
    BODY_FORMAT,
    JSON_FORMAT,
    SHARDING_KEY,
    TAGS,
    UNIQ_KEY,
)
from eruca.rows.arrow_schema import STRING, TIMESTAMP, arrow_schema
from eruca.rows.bodies import Bodies, are_compressed, plain_bodies
from eruca.rows.offset_ids import offset_ids
from eruca.rows.property_columns import keys_of, others_of, values_of
from eruca.rows.property_fragments import Fragments, read_fragments
from eruca.rows.record_fields import ArrowArray, Int64Array, RecordFields

# Years 1 to 9999: the range that Arrow's readers support.
MS_MIN: Final = -62_135_596_800_000
MS_MAX: Final = 253_402_300_799_999


@dataclass(frozen=True)
class Rows:
    """Messages of one broker, and their columns by name."""

    topic: str | ArrowArray  # of all of them, or of each
    broker_name: str
    fields: RecordFields
    columns: Sequence[str]  # the requested ones

    @cached_property
    def properties(self) -> Fragments:
        """The messages' properties."""
        return read_fragments(self.fields.property_texts())

    @cached_property
    def bodies(self) -> Bodies:
        """The bodies of the first messages, decompressed."""
        return plain_bodies(self.fields.bodies(), self.fields.sys_flags)

    @cached_property
    def count(self) -> int:
        """The number of messages in the batch: all, or only the first ones if bodies are large."""
        if _UNPACKED.isdisjoint(self.columns) or not are_compressed(self.fields.sys_flags).any():
            return self.fields.count
        return len(self.bodies.sys_flags)

    def batch(self) -> pa.RecordBatch:
        """Return the first ``count`` messages."""
        arrays = [_COLUMNS[name](self)[: self.count] for name in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self.columns))

    def are_json(self) -> NDArray[np.bool_]:
        """Return which of the first ``count`` messages have a body that was sent as JSON."""
        formats = values_of(self.properties, BODY_FORMAT)[: self.count]
        are: NDArray[np.bool_] = (
            pc.fill_null(pc.equal(formats, JSON_FORMAT), False)  # noqa: FBT003 - Arrow's
        ).to_numpy(zero_copy_only=False)
        return are


_COLUMNS: Final[Mapping[str, Callable[[Rows], ArrowArray]]] = {
    "topic": lambda rows: _topics(rows),
    "broker_name": lambda rows: _repeated(rows.broker_name, rows.fields.count),
    "queue_id": lambda rows: pa.array(rows.fields.queue_ids),
    "queue_offset": lambda rows: pa.array(rows.fields.queue_offsets),
    "log_offset": lambda rows: pa.array(rows.fields.log_offsets),
    "stored_at": lambda rows: _moments(np.clip(rows.fields.stored_ms, MS_MIN, MS_MAX)),
    "born_at": lambda rows: _moments(rows.fields.born_ms),
    "message_id": lambda rows: values_of(rows.properties, UNIQ_KEY),
    "offset_message_id": lambda rows: offset_ids(rows.fields),
    "tag": lambda rows: values_of(rows.properties, TAGS),
    "keys": lambda rows: keys_of(rows.properties),
    "sharding_key": lambda rows: values_of(rows.properties, SHARDING_KEY),
    "body": lambda rows: rows.bodies.bodies,
    "properties": lambda rows: others_of(rows.properties),
    "reconsume_times": lambda rows: pa.array(rows.fields.reconsume_times),
    "sys_flag": lambda rows: pa.array(rows.bodies.sys_flags),
    "flag": lambda rows: pa.array(rows.fields.flags),
    "prepared_offset": lambda rows: pa.array(rows.fields.prepared_offsets),
    "size": lambda rows: pa.array(rows.fields.sizes.astype(np.int32)),
    "damage": lambda rows: pa.nulls(rows.fields.count, STRING),
}


_UNPACKED: Final = frozenset({"body", "sys_flag"})  # columns that require decompressed bodies


def _topics(rows: Rows) -> ArrowArray:
    if isinstance(rows.topic, str):
        return _repeated(rows.topic, rows.fields.count)
    return rows.topic


def _repeated(text: str, count: int) -> ArrowArray:
    return pa.repeat(pa.scalar(text, STRING), count)


def _moments(ms: Int64Array) -> ArrowArray:
    """Return times as Arrow timestamps; null for a time outside of Arrow's range."""
    is_none = (ms < MS_MIN) | (ms > MS_MAX)
    return pa.array(np.where(is_none, 0, ms) * 1000, mask=is_none).cast(TIMESTAMP)
