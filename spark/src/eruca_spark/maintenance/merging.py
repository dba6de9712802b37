"""Merge Parquet files: rows stay in order, types and names stay those of the export.

Memory is bounded by a row group, whatever the size of the files and of their rows. Only columns of
short texts have dictionaries, so rows in memory are about as large as in their row group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from eruca_spark.lake import LakeError

ROW_GROUP_BYTES: Final = 32 * 1024 * 1024  # of rows in memory, before compression
_BATCH_ROWS_MAX: Final = 8_192
_BATCH_BYTES: Final = 8 * 1024 * 1024  # of rows that are decoded at once, on average
_READ_BUFFER_SIZE: Final = 1024 * 1024
_DICTIONARIES: Final = ["broker_name", "tag"]  # as in files of the export
_TIME: Final = pa.timestamp("us", tz="UTC")
_ZONELESS_TIME: Final = pa.timestamp("us")


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

    A column that some files lack is null in their rows. Times become microseconds, those of earlier
    versions (INT96) in UTC. Times without a zone stay without one.

    Raises:
        LakeError: A file is unreadable, a column has two types, or rows are missing.
    """
    schemas = []
    expected = 0
    for source in sources:
        with _opened(source) as file:
            schemas.append(_normal(file))
            expected += file.metadata.num_rows
    # Earlier versions gave all times a zone when they merged.
    zoneless = {
        field.name for schema in schemas for field in schema if field.type == _ZONELESS_TIME
    }
    # The newest file decides the order of columns.
    try:
        schema = pa.unify_schemas([_without_zones(one, zoneless) for one in schemas[::-1]])
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
            for batch in _batches(file):
                group.append(_fitted(batch, schema))
                size += batch.nbytes
                if size >= ROW_GROUP_BYTES:
                    yield pa.Table.from_batches(group, schema)
                    group, size = [], 0
    if group:
        yield pa.Table.from_batches(group, schema)


def _batches(file: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - pyarrow has no types
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        rows = _BATCH_BYTES * group.num_rows // max(1, group.total_byte_size)
        rows = max(1, min(rows, _BATCH_ROWS_MAX))
        yield from file.iter_batches(batch_size=rows, row_groups=[number])


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


def _normal(file: Any) -> pa.Schema:  # noqa: ANN401 - pyarrow has no types
    leaves = (file.schema.column(number) for number in range(len(file.schema)))
    moments = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
    fields = []
    for field in file.schema_arrow.remove_metadata():
        type_ = field.type
        if pa.types.is_timestamp(type_):
            is_moment = type_.tz is not None or field.name in moments
            type_ = _TIME if is_moment else _ZONELESS_TIME
        fields.append(pa.field(field.name, type_))
    return pa.schema(fields)


def _without_zones(schema: pa.Schema, names: set[str]) -> pa.Schema:
    return pa.schema(
        field.with_type(_ZONELESS_TIME) if field.name in names and field.type == _TIME else field
        for field in schema
    )


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        number = batch.schema.get_field_index(field.name)
        if number < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            columns.append(batch.column(number).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
