"""Files of exports hold the rows of their parts, in every format."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from eruca.cli.exporting.files import FileFormat, row_count, write_file
from eruca.contract.errors import ConflictError
from eruca.contract.exports import ARROW_MEDIA_TYPE, NDJSON_MEDIA_TYPE

PARTS = ([1, 2], [3])
ROWS = 3


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    paths = []
    for number, values in enumerate(PARTS):
        path = tmp_path / f"part-{number}"
        batch = pa.RecordBatch.from_pydict({"offset": values})
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(str(path), batch.schema, options=options) as stream:
            stream.write_batch(batch)
        paths.append(path)
    return paths


def test_the_rows_of_a_part_are_counted_up_to_where_it_was_cut(parts: list[Path]) -> None:
    whole = parts[0].read_bytes()
    assert row_count(parts[0], ARROW_MEDIA_TYPE) == 2

    parts[0].write_bytes(whole[: len(whole) // 2])

    assert row_count(parts[0], ARROW_MEDIA_TYPE) == 0


def test_a_line_counts_once_it_is_whole(tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_bytes(b'{"a":1}\n{"a":2}\n{"a":')

    assert row_count(part, NDJSON_MEDIA_TYPE) == 2


@pytest.mark.parametrize("file_format", [FileFormat.ARROW, FileFormat.PARQUET])
def test_a_file_holds_the_rows_of_its_parts_in_order(
    tmp_path: Path, parts: list[Path], file_format: FileFormat
) -> None:
    target = tmp_path / f"out.{file_format}"
    told: list[int] = []

    write_file(target, file_format, parts, ROWS, told.append)

    if file_format is FileFormat.PARQUET:
        found = parquet.read_table(str(target))
    else:
        found = pa.ipc.open_file(str(target)).read_all()
    assert found.column("offset").to_pylist() == [1, 2, 3]
    assert sum(told) == ROWS


def test_parts_with_other_rows_than_were_exported_make_no_file(
    tmp_path: Path, parts: list[Path]
) -> None:
    target = tmp_path / "out.parquet"

    with pytest.raises(ConflictError, match="expected 4 rows"):
        write_file(target, FileFormat.PARQUET, parts, ROWS + 1, lambda _: None)

    assert list(tmp_path.glob("out*")) == []
