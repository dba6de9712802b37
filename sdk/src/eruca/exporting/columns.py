"""The columns of an export, in Spark's types and in Arrow's.

Spark compares the schema of a task's first batch with its own, exactly: names, order, types, the
names of list elements and map values. So these schemas are the ones that Spark 4.3 derives itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

SCHEMA_VERSION: Final = 2

_TYPES: Final = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "BINARY": pa.binary(),
    "ARRAY<STRING>": pa.list_(pa.field("element", pa.string())),
    "MAP<STRING, STRING>": pa.map_(pa.string(), pa.field("value", pa.string())),
}
COLUMNS: Final = {
    "topic": "STRING",
    "broker_name": "STRING",
    "queue_id": "INT",
    "queue_offset": "BIGINT",
    "log_offset": "BIGINT",
    "stored_at": "TIMESTAMP",
    "born_at": "TIMESTAMP",
    "message_id": "STRING",
    "offset_message_id": "STRING",
    "tag": "STRING",
    "keys": "ARRAY<STRING>",
    "sharding_key": "STRING",
    "body": "BINARY",
    "properties": "MAP<STRING, STRING>",
    "reconsume_times": "INT",
    "sys_flag": "INT",
    "flag": "INT",
    "prepared_offset": "BIGINT",
    "size": "INT",
    "damage": "STRING",
}
"""Every column, in order, with Spark's type. For Spark, all are nullable."""
DAMAGE: Final = "damage"  # null in rows of undamaged messages


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """Return the Arrow schema of some columns, exactly as Spark derives it from its own."""
    return pa.schema([pa.field(name, _TYPES[COLUMNS[name]]) for name in columns])
