"""A data source for comparison: the same rows as NDJSON, in batches of lines."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from eruca.exporting.columns import COLUMNS, arrow_schema

_BATCH_ROWS: Final = 10_000


class NdjsonSource(DataSource):
    """A format with one option: ``urls``, each with one range, separated by spaces."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._urls = options["urls"].split()

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "eruca-ndjson"

    def schema(self) -> str:
        """Return the columns."""
        return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader."""
        return NdjsonReader(self._urls)


class NdjsonReader(DataSourceReader):
    """A task for each URL."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls

    def partitions(self) -> list[InputPartition]:
        """Return the URLs."""
        return [InputPartition(url) for url in self._urls]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one URL."""
        request = urllib.request.Request(
            partition.value, headers={"accept": "application/x-ndjson"}
        )
        with urllib.request.urlopen(request) as answer:
            while rows := [json.loads(line) for line in islice(answer, _BATCH_ROWS)]:
                yield batch_of(rows)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Convert rows to the schema that Spark needs."""
    schema = arrow_schema(COLUMNS)
    return pa.RecordBatch.from_arrays([_array(rows, field) for field in schema], schema=schema)


def _array(rows: list[dict[str, Any]], field: pa.Field) -> pa.Array:
    values = [row[field.name] for row in rows]
    if pa.types.is_timestamp(field.type):
        return pa.array(values, pa.string()).cast(field.type)
    if pa.types.is_binary(field.type):
        values = [
            body["text"].encode() if "text" in body else base64.b64decode(body["base64"])
            for body in values
        ]
    elif pa.types.is_map(field.type):
        values = [list(pairs.items()) for pairs in values]
    return pa.array(values, field.type)
