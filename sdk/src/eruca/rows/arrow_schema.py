"""The Arrow schema of exports: the contract's columns as Spark would declare them.

Spark compares the schema that it receives with its own, field by field: names, order, types,
nullability, even the names of the fields inside lists and maps. So this is exactly the schema that
Spark makes of ``EXPORT_COLUMNS``: all nullable, in UTC.

Source: ``pyspark.sql.pandas.types.to_arrow_schema`` of Spark 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from eruca.contract.exports import EXPORT_COLUMNS, ArrowType

STRING: Final = pa.string()
LIST_OF_STRINGS: Final = pa.list_(pa.field("element", STRING))
MAP_OF_STRINGS: Final = pa.map_(pa.field("key", STRING, nullable=False), pa.field("value", STRING))
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

_TYPES: Final[dict[ArrowType, pa.DataType]] = {
    "string": STRING,
    "int32": pa.int32(),
    "int64": pa.int64(),
    "timestamp[us, tz=UTC]": TIMESTAMP,
    "binary": pa.binary(),
    "list<string>": LIST_OF_STRINGS,
    "map<string, string>": MAP_OF_STRINGS,
}

EXPORT_ARROW_SCHEMA: Final = pa.schema(
    [pa.field(column.name, _TYPES[column.type]) for column in EXPORT_COLUMNS]
)
"""All columns."""


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of the named *columns*, in their order."""
    return pa.schema([EXPORT_ARROW_SCHEMA.field(name) for name in columns])
