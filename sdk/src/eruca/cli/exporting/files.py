"""From parts to the file that was asked for: NDJSON, Arrow's file format, or Parquet.

NDJSON needs nothing but what is here; for the others pyarrow is needed (extra ``arrow``). Files are
written beside their place, made durable and renamed, so one that is there is whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from eruca.cli.installation import INSTALLATION
from eruca.contract.errors import ConflictError, ValidationError
from eruca.contract.exports import ARROW_MEDIA_TYPE, NDJSON_MEDIA_TYPE

ROW_GROUP_SIZE: Final = 32 * 1024 * 1024  # bytes of rows that Parquet keeps together
_COPY_SIZE: Final = 1024 * 1024

Progress = Callable[[int], None]
"""Told how many more rows have been written."""


class FileFormat(StrEnum):
    """The format of a file, by the end of its name."""

    NDJSON = "ndjson"
    ARROW = "arrow"
    PARQUET = "parquet"

    @property
    def media_type(self) -> str:
        """The media type to request for the rows."""
        return NDJSON_MEDIA_TYPE if self is FileFormat.NDJSON else ARROW_MEDIA_TYPE

    @property
    def codec(self) -> str:
        """The compression to request for the rows."""
        return "none" if self is FileFormat.NDJSON else "zstd"


_SUFFIXES: Final = {
    ".ndjson": FileFormat.NDJSON,
    ".jsonl": FileFormat.NDJSON,
    ".arrow": FileFormat.ARROW,
    ".feather": FileFormat.ARROW,
    ".parquet": FileFormat.PARQUET,
}


def format_of(path: Path) -> FileFormat:
    """Return what *path* is to be.

    Raises:
        ValidationError: Its name does not tell.
    """
    file_format = _SUFFIXES.get(path.suffix.lower())
    if file_format is None:
        raise ValidationError(
            f"{path.name!r} does not tell what it is to be: it ends in none of "
            f"{', '.join(_SUFFIXES)}"
        )
    return file_format


def check_available(file_format: FileFormat) -> None:
    """Raise ValidationError where what writes such files is not installed."""
    if file_format is not FileFormat.NDJSON:
        try:
            import pyarrow  # noqa: F401 - whether it is there is the question
        except ImportError:
            raise ValidationError(
                f"{file_format} files are written with pyarrow, which is not installed",
                fix=f"{INSTALLATION}; or export to a file that ends in .ndjson",
            ) from None


def row_count(part: Path, media_type: str) -> int:
    """Return how many rows *part* has, which may have been cut anywhere."""
    if media_type == NDJSON_MEDIA_TYPE:
        with part.open("rb") as file:
            return sum(piece.count(b"\n") for piece in _pieces(file))
    import pyarrow as pa

    found = 0
    with suppress(pa.ArrowInvalid, OSError):
        for batch in _batches([part]):
            found += batch.num_rows
    return found


def write_file(
    target: Path, file_format: FileFormat, parts: Sequence[Path], rows: int, told: Progress
) -> None:
    """Make *target* of *parts*, in their order, which have so many rows together.

    Raises:
        ConflictError: They have not: somebody has changed them.
    """
    written = 0

    def count(some: int) -> None:
        nonlocal written
        written += some
        told(some)

    unfinished = target.with_name(target.name + ".unfinished")
    try:
        if file_format is FileFormat.NDJSON:
            _write_ndjson(unfinished, parts, count)
        elif file_format is FileFormat.ARROW:
            _write_arrow(unfinished, parts, count)
        else:
            _write_parquet(unfinished, parts, count)
        if written != rows:
            raise ConflictError(
                f"the parts of {target} have {written} rows, and what was exported {rows}",
                fix="give --restart to read them again",
            )
        make_durable(unfinished)
        unfinished.replace(target)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()


def make_durable(path: Path) -> None:
    """Return once what was written to a file is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _pieces(file: Any) -> Iterator[bytes]:  # noqa: ANN401 - a file opened for reading bytes
    while piece := file.read(_COPY_SIZE):
        yield piece


def _write_ndjson(path: Path, parts: Sequence[Path], told: Progress) -> None:
    with path.open("wb") as file:
        for part in parts:
            with part.open("rb") as lines:
                for piece in _pieces(lines):
                    file.write(piece)
                    told(piece.count(b"\n"))


def _write_arrow(path: Path, parts: Sequence[Path], told: Progress) -> None:
    import pyarrow as pa

    schema = _schema(parts)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(str(path), schema, options=options) as writer:
        for batch in _batches(parts):
            writer.write_batch(batch)
            told(batch.num_rows)


def _write_parquet(path: Path, parts: Sequence[Path], told: Progress) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    schema = _schema(parts)
    group: list[Any] = []
    with parquet.ParquetWriter(str(path), schema, compression="zstd") as writer:

        def write_group() -> None:
            table = pa.Table.from_batches(group, schema)
            writer.write_table(table, row_group_size=max(table.num_rows, 1))
            told(table.num_rows)
            group.clear()

        for batch in _batches(parts):
            group.append(batch)
            if sum(b.nbytes for b in group) >= ROW_GROUP_SIZE:
                write_group()
        if group:
            write_group()


def _schema(parts: Sequence[Path]) -> Any:  # noqa: ANN401 - pyarrow has no types
    import pyarrow as pa

    with pa.OSFile(str(parts[0])) as file, pa.ipc.open_stream(file) as stream:
        return stream.schema


def _batches(parts: Sequence[Path]) -> Iterator[Any]:
    import pyarrow as pa

    for part in parts:
        with pa.OSFile(str(part)) as file, pa.ipc.open_stream(file) as stream:
            yield from stream
