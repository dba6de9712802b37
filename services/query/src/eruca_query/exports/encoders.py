"""Record batches as bytes: Arrow's stream format, and NDJSON.

An Arrow stream ends with a marker. It is written only by :meth:`RowEncoder.end`, so a stream that
was cut cannot pass for a whole one.

Source: Apache Arrow, "IPC Streaming Format".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from eruca.contract.exports import (
    ARROW_MEDIA_TYPE,
    BATCH_RANGE_METADATA,
    NDJSON_MEDIA_TYPE,
    ExportCodec,
    ExportRange,
)
from eruca_query.exports.arrow_schema import arrow_schema
from eruca_query.exports.ndjson import ndjson_lines


class RowEncoder(Protocol):
    """Turns batches into the bytes of one answer; used by one thread at a time."""

    @property
    def media_type(self) -> str:
        """What the bytes are."""
        ...

    def add(self, batch: pa.RecordBatch, covered: ExportRange) -> bytes:
        """Return *batch*, whose rows are those of the range *covered*."""
        ...

    def end(self) -> bytes:
        """Return what comes behind the last batch, and says that it was the last."""
        ...


class ArrowEncoder:
    """Arrow's stream format; each batch tells its range in its metadata."""

    media_type: Final = ARROW_MEDIA_TYPE

    def __init__(self, columns: Sequence[str], codec: ExportCodec) -> None:
        self._pieces = _Pieces()
        options = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
        sink = pa.PythonFile(self._pieces, "w")
        self._writer = pa.ipc.new_stream(sink, arrow_schema(columns), options=options)

    def add(self, batch: pa.RecordBatch, covered: ExportRange) -> bytes:
        """Return a batch, behind the schema if it is the first."""
        self._writer.write_batch(batch, {BATCH_RANGE_METADATA: covered.text.encode()})
        return self._pieces.taken()

    def end(self) -> bytes:
        """Return the end-of-stream marker, behind the schema if there was no batch."""
        self._writer.close()
        return self._pieces.taken()


class NdjsonEncoder:
    """NDJSON; its end has no marker but the number of its lines."""

    media_type: Final = NDJSON_MEDIA_TYPE

    def add(self, batch: pa.RecordBatch, covered: ExportRange) -> bytes:
        """Return the lines of a batch."""
        return ndjson_lines(batch)

    def end(self) -> bytes:
        """Return nothing."""
        return b""


class _Pieces:
    """A file to write to that keeps what is written, without copying it, until it is taken."""

    closed: Final = False

    def __init__(self) -> None:
        self._pieces: list[Any] = []  # bytes, or buffers of Arrow's

    def write(self, piece: Any) -> None:  # noqa: ANN401 - as above
        self._pieces.append(piece)

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def taken(self) -> bytes:
        """Return what has been written since the last time."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
