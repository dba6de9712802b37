"""Write the parts into the requested file: NDJSON, Arrow's file format, or Parquet.

NDJSON needs only the standard library and msgspec; the others need pyarrow (extra ``arrow``). A
file is written beside its place, made durable and renamed. So an existing file is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from eruca.cli.installation import INSTALLATION
from eruca.contract.errors import ConflictError, ValidationError
from eruca.contract.exports import ARROW_MEDIA_TYPE, NDJSON_MEDIA_TYPE
from eruca.objects.durable_files import make_durable

ROW_GROUP_SIZE: Final = 32 * 1024 * 1024  # bytes of rows in one Parquet row group
_COPY_SIZE: Final = 1024 * 1024

Progress = Callable[[int], None]
"""Called with the number of additional rows written."""


class FileFormat(StrEnum):
    """The format of a file, by its extension."""

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
    """Return the format for *path*.

    Raises:
        ValidationError: Its extension is unknown.
    """
    file_format = _SUFFIXES.get(path.suffix.lower())
    if file_format is None:
        raise ValidationError(
            f"expected a file name that ends in {', '.join(_SUFFIXES)}; found {path.name!r}"
        )
    return file_format


def check_available(file_format: FileFormat) -> None:
    """Raise ValidationError if the package for a format is not installed."""
    if file_format is not FileFormat.NDJSON:
        try:
            import pyarrow  # noqa: F401 - whether it is there is the question
        except ImportError:
            raise ValidationError(
                f"pyarrow is not installed; it is required for {file_format} files",
                fix=f"{INSTALLATION}; or export to a file that ends in .ndjson",
            ) from None


def row_count(part: Path, media_type: str) -> int:
    """Return the number of rows in *part*, which may be truncated anywhere."""
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
    """Write *target* from *parts*, in their order, with *rows* rows in total.

    Raises:
        ConflictError: The parts have another number of rows: they were changed.
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
                f"expected {rows} rows in the parts of {target}, found {written}",
                fix="use --restart to read them again",
            )
        make_durable(unfinished)
        unfinished.replace(target)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()


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
