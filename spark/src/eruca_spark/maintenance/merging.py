"""Merge Parquet files: rows stay in order, types and names stay those of the export.

Memory is bounded by a row group, whatever the size of the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from eruca_spark.lake import LakeError

ROW_GROUP_BYTES: Final = 32 * 1024 * 1024  # of rows in memory, before compression
_BATCH_ROWS: Final = 8_192
_READ_BUFFER_SIZE: Final = 1024 * 1024
_DICTIONARIES: Final = ["broker_name", "tag"]  # as in files of the export


def row_count(path: Path) -> int:
    """Return the number of rows of a file.

    Raises:
        LakeError: The file is missing or no Parquet.
    """
    with _opened(path) as file:
        rows: int = file.metadata.num_rows
        return rows


def merge_files(sources: Sequence[Path], target: Path) -> int:
    """Write the rows of all *sources* to *target*, in order; return their number.

    A column that some files lack is null in their rows. Times of earlier versions (INT96) become
    microseconds in UTC.

    Raises:
        LakeError: A file is unreadable, a column has two types, or rows are missing.
    """
    schemas = []
    expected = 0
    for source in sources:
        with _opened(source) as file:
            schemas.append(_normal(file.schema_arrow))
            expected += file.metadata.num_rows
    # The newest file decides the order of columns.
    try:
        schema = pa.unify_schemas(schemas[::-1])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise LakeError(f"cannot merge {target.parent}: {error}") from error
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    options = {
        "compression": "zstd",
        "use_dictionary": _DICTIONARIES,
        # Spark derives its types from the columns, as in its own files.
        "store_schema": False,
    }
    with pq.ParquetWriter(target, schema, **options) as writer:
        for table in _row_groups(sources, schema):
            writer.write_table(table, row_group_size=table.num_rows)
            written += table.num_rows
    found = row_count(target)
    if not written == expected == found:
        raise LakeError(f"expected {expected} rows in {target}, wrote {written}, found {found}")
    return found


def _row_groups(sources: Sequence[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    group: list[pa.RecordBatch] = []
    size = 0
    for source in sources:
        with _opened(source) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                group.append(_fitted(batch, schema))
                size += batch.nbytes
                if size >= ROW_GROUP_BYTES:
                    yield pa.Table.from_batches(group, schema)
                    group, size = [], 0
    if group:
        yield pa.Table.from_batches(group, schema)


def _opened(path: Path) -> Any:  # noqa: ANN401 - pyarrow has no types
    try:
        return pq.ParquetFile(
            path,
            buffer_size=_READ_BUFFER_SIZE,
            pre_buffer=False,
            coerce_int96_timestamp_unit="us",
        )
    except (OSError, pa.ArrowInvalid) as error:
        raise LakeError(f"unreadable file of the lake: {path}: {error}") from error


def _normal(schema: pa.Schema) -> pa.Schema:
    fields = []
    for field in schema.remove_metadata():
        is_time = pa.types.is_timestamp(field.type)
        type_ = pa.timestamp("us", tz="UTC") if is_time else field.type
        fields.append(pa.field(field.name, type_))
    return pa.schema(fields)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        number = batch.schema.get_field_index(field.name)
        if number < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            columns.append(batch.column(number).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
