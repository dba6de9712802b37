"""Encoders: an answer's bytes, of pieces that different encoders may have made."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from eruca.contract.exports import BATCH_RANGE_METADATA, ExportCodec, ExportRange
from eruca.rows.arrow_schema import arrow_schema
from eruca_query.exports.rows.encoders import ArrowEncoder, NdjsonEncoder

COLUMNS = ["queue_offset", "tag", "keys"]
SCHEMA = arrow_schema(COLUMNS)
BATCHES = [
    pa.RecordBatch.from_pylist(
        [{"queue_offset": n, "tag": None, "keys": ["a", "b"]} for n in range(first, first + 300)],
        schema=SCHEMA,
    )
    for first in (0, 300)
]


@dataclass(frozen=True)
class Made:
    """Rows that are there already."""

    rows: pa.RecordBatch

    def batch(self) -> pa.RecordBatch:
        return self.rows

    def are_json(self) -> NDArray[np.bool_]:
        return np.zeros(self.rows.num_rows, np.bool_)


def range_of(batch: pa.RecordBatch) -> ExportRange:
    first = batch["queue_offset"][0].as_py()
    return ExportRange(
        broker_name="broker-a", queue_id=0, from_offset=first, to_offset=first + batch.num_rows
    )


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("batches", [[], BATCHES])
def test_the_pieces_of_several_encoders_are_the_stream_that_arrow_writes(
    codec: ExportCodec, batches: list[pa.RecordBatch]
) -> None:
    whole = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
    with pa.ipc.new_stream(whole, SCHEMA, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch, {BATCH_RANGE_METADATA: range_of(batch).text.encode()})

    pieces = [
        piece
        for batch in batches
        for piece in ArrowEncoder(COLUMNS, codec).rows(Made(batch), range_of(batch))
    ]
    service = ArrowEncoder(COLUMNS, codec)

    assert b"".join([service.begin(), *pieces, service.end()]) == whole.getvalue()


def test_an_encoder_makes_the_same_bytes_of_a_batch_each_time() -> None:
    encoder = ArrowEncoder(COLUMNS, "none")
    first, second = BATCHES

    before = b"".join(encoder.rows(Made(first), range_of(first)))
    encoder.rows(Made(second), range_of(second))

    assert b"".join(encoder.rows(Made(first), range_of(first))) == before


def test_ndjson_is_its_lines_and_nothing_else() -> None:
    encoder = NdjsonEncoder()
    [lines] = encoder.rows(Made(BATCHES[0]), range_of(BATCHES[0]))
    assert isinstance(lines, bytes)

    assert (encoder.begin(), encoder.end()) == (b"", b"")
    assert lines.count(b"\n") == BATCHES[0].num_rows
