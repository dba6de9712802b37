"""Arrow batches of proven records, and the row of a damaged part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eruca.core.messages.record_columns import Int64Array
from eruca.exporting.columns import DAMAGE, arrow_schema
from eruca.rows.message_batches import Rows
from eruca.rows.record_fields import read_fields
from pyspark_eruca_segments.selection import Selection
from pyspark_eruca_segments.walk import Damaged, Proven


def batches_of(
    proven: Proven, selection: Selection, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that are wanted, in the log's order."""
    chosen = selection.chosen(proven)
    if not chosen.any():
        return
    buffer, sizes = _together(proven, chosen)
    names = pa.array(proven.topics, pa.string())
    topics = names.take(pa.array(proven.numbers[chosen]))
    while len(sizes):
        rows = Rows(topics, selection.broker_name, read_fields(buffer, sizes), columns)
        batch = rows.batch()
        yield batch
        # Bodies that grow by decompression fill a batch sooner.
        done = batch.num_rows
        buffer = buffer[int(sizes[:done].sum()) :]
        sizes, topics = sizes[done:], topics[done:]


def damaged_row(damaged: Damaged, selection: Selection, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the row of a damaged part: its place, and its fault."""
    assert DAMAGE in columns, "a damaged row would look like a valid one"
    row: dict[str, Any] = {
        "broker_name": selection.broker_name,
        "log_offset": damaged.log_offset,
        "size": damaged.size if damaged.size < 2**31 else None,
        DAMAGE: damaged.fault,
    }
    return pa.RecordBatch.from_pylist(
        [{name: row.get(name) for name in columns}], schema=arrow_schema(columns)
    )


def _together(proven: Proven, chosen: NDArray[np.bool_]) -> tuple[memoryview, Int64Array]:
    """Return the chosen records back to back, without a copy if they are all, and their sizes."""
    starts, sizes = proven.columns.starts, proven.columns.sizes
    if chosen.all():
        begin, end = int(starts[0]), int(starts[-1] + sizes[-1])
        return memoryview(proven.data)[begin:end], sizes
    bounds = np.append(starts, starts[-1] + sizes[-1]).astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(proven.data)]
    records = pa.Array.from_buffers(pa.binary(), len(starts), buffers)
    its = sizes[chosen]
    copied = records.filter(pa.array(chosen)).buffers()[2]
    return memoryview(copied)[: int(its.sum())], its
