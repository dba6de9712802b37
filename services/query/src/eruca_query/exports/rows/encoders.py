"""Record batches as bytes: Arrow's stream format, and NDJSON.

An Arrow stream ends with a marker. Only :meth:`RowEncoder.end` writes it, so a truncated stream
cannot pass for a complete one.

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
from eruca.rows.arrow_schema import arrow_schema
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
    """Encodes batches as an answer: the results of the three methods, one after the other.

    It has no state of an answer. So several encoders may share the rows of one answer, and one
    encoder may serve several answers.
    """

    @property
    def media_type(self) -> str:
        """The media type of the bytes."""
        ...

    def begin(self) -> bytes:
        """Return the bytes before the first batch."""
        ...

    def rows(self, made: MadeRows, covered: ExportRange) -> Pieces:
        """Return the rows of the range *covered*.

        Some of the pieces may be the batch's own memory.
        """
        ...

    def end(self) -> bytes:
        """Return the bytes after the last batch, which mark it as the last."""
        ...


class ArrowEncoder:
    """Arrow's stream format; each batch names its range in its metadata."""

    media_type: Final = ARROW_MEDIA_TYPE

    def __init__(self, columns: Sequence[str], codec: ExportCodec) -> None:
        schema = arrow_schema(columns)
        self._begin: bytes = schema.serialize().to_pybytes()
        self._pieces = _Pieces()
        options = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._pieces, "w"), schema, options=options)
        self._writer.write_batch(pa.RecordBatch.from_pylist([], schema=schema))
        self._pieces.taken()  # drop the schema, which ``begin`` returns

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
    """NDJSON; the number of lines is the only sign of its end."""

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
    """A writable file that keeps the written pieces, without a copy, until they are taken."""

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
        """Return the pieces written since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces
