"""Record batches as bytes: Arrow's stream format, and NDJSON.

An Arrow stream ends with a marker. It is written only by :meth:`RowEncoder.end`, so a stream that
was cut cannot pass for a whole one.

Source: Apache Arrow, "IPC Streaming Format".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eruca.contract.exports import (
    ARROW_MEDIA_TYPE,
    BATCH_RANGE_METADATA,
    NDJSON_MEDIA_TYPE,
    ExportCodec,
    ExportRange,
)
from eruca_query.exports.rows.arrow_schema import arrow_schema
from eruca_query.exports.rows.ndjson import ndjson_lines

_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"


Pieces: TypeAlias = list[bytes | memoryview]


class MadeRows(Protocol):
    """Rows to encode."""

    def batch(self) -> pa.RecordBatch:
        """Return them as columns."""
        ...

    def are_json(self) -> NDArray[np.bool_]:
        """Return which rows' bodies were sent as JSON."""
        ...


class RowEncoder(Protocol):
    """Turns batches into the bytes of an answer, which is what comes of the three one by one.

    It keeps nothing of an answer, so many may make one answer's rows, and one those of many.
    """

    @property
    def media_type(self) -> str:
        """The media type of the bytes."""
        ...

    def begin(self) -> bytes:
        """Return what comes before the first batch."""
        ...

    def rows(self, made: MadeRows, covered: ExportRange) -> Pieces:
        """Return rows, which are those of the range *covered*.

        Some of the pieces may be their batch's own memory.
        """
        ...

    def end(self) -> bytes:
        """Return what comes behind the last batch, and says that it was the last."""
        ...


class ArrowEncoder:
    """Arrow's stream format; each batch tells its range in its metadata."""

    media_type: Final = ARROW_MEDIA_TYPE

    def __init__(self, columns: Sequence[str], codec: ExportCodec) -> None:
        schema = arrow_schema(columns)
        self._begin: bytes = schema.serialize().to_pybytes()
        self._pieces = _Pieces()
        options = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._pieces, "w"), schema, options=options)
        self._writer.write_batch(pa.RecordBatch.from_pylist([], schema=schema))
        self._pieces.taken()  # the schema, which is said once

    def begin(self) -> bytes:
        """Return the schema."""
        return self._begin

    def rows(self, made: MadeRows, covered: ExportRange) -> Pieces:
        """Return a batch."""
        self._writer.write_batch(made.batch(), {BATCH_RANGE_METADATA: covered.text.encode()})
        return self._pieces.taken()

    def end(self) -> bytes:
        """Return the end-of-stream marker."""
        return _END_OF_STREAM


class NdjsonEncoder:
    """NDJSON; its end has no marker but the number of its lines."""

    media_type: Final = NDJSON_MEDIA_TYPE

    def begin(self) -> bytes:
        """Return nothing."""
        return b""

    def rows(self, made: MadeRows, covered: ExportRange) -> Pieces:
        """Return a line for each row."""
        return [ndjson_lines(made.batch(), made.are_json())]

    def end(self) -> bytes:
        """Return nothing."""
        return b""


class _Pieces:
    """A file to write to that keeps what is written, without copying it, until it is taken."""

    closed: Final = False

    def __init__(self) -> None:
        self._pieces: Pieces = []

    def write(self, piece: Any) -> None:  # noqa: ANN401 - bytes, or a buffer of Arrow's
        self._pieces.append(memoryview(piece))

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def taken(self) -> Pieces:
        """Return what has been written since the last time."""
        pieces, self._pieces = self._pieces, []
        return pieces
