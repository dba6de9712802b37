"""What the data source is held against: the same rows as NDJSON, read line by line."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_eruca.columns import COLUMNS


class NdjsonSource(DataSource):
    """A format with one option: ``urls``, of one range each, with spaces between."""

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

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield rows."""
        request = urllib.request.Request(
            partition.value, headers={"accept": "application/x-ndjson"}
        )
        with urllib.request.urlopen(request) as answer:
            for line in answer:
                row = json.loads(line)
                for name in ("stored_at", "born_at"):
                    row[name] = datetime.fromisoformat(row[name])
                body = row["body"]
                text = body.get("text")
                row["body"] = base64.b64decode(body["base64"]) if text is None else text.encode()
                yield tuple(row.values())
