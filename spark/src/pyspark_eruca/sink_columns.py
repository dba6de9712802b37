"""The columns of a frame that is written to topics, and the message of a row.

A frame has the column ``body``, and ``topic`` unless the option names one topic for all rows. The
other columns are optional. A column of another name is refused, so that nothing is silently left
out.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from eruca.exporting.errors import OptionError

DELETED_PROPERTY: Final = "ERUCA_DELETED"  # "true": the message deletes its key; see compaction
_DELETED_BODY: Final = "deleted"  # of a deletion without a body, because no message may be empty

SINK_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("STRING",),
    "body": ("BINARY", "STRING"),
    "key": ("STRING",),
    "keys": ("ARRAY<STRING>",),
    "tag": ("STRING",),
    "properties": ("MAP<STRING, STRING>",),
    "sharding_key": ("STRING",),
    "deliver_at": ("TIMESTAMP",),
    "flag": ("INT",),
    "deleted": ("BOOLEAN",),
}
"""Every column, with the types that it may have."""
_KAFKA: Final = {
    "value": "rename it to body",
    "headers": "make it a map of strings, properties",
    "partition": "use sharding_key: messages with the same one stay in order in one queue",
}


class Message(NamedTuple):
    """A row's message."""

    topic: str
    sharding_key: str | None
    text: bytes  # its JSON


class RowError(Exception):
    """A row is not a message; the text says why."""


class SinkColumns:
    """The columns of a frame, checked before anything is sent.

    Args:
        schema: The frame's.
        topic: The topic of all rows; None: the column ``topic`` has it.
        key_column: The column of the idempotency keys; None: there is none.

    Raises:
        OptionError: A column is missing, unknown, or has an unsuitable type.
    """

    def __init__(self, schema: StructType, *, topic: str | None, key_column: str | None) -> None:
        names = schema.fieldNames()
        faults = [_fault(one.name, one.dataType, key_column) for one in schema.fields]
        if "body" not in names:
            faults.append("the column body is missing")
        if topic is None and "topic" not in names:
            faults.append("name the topic: in the option topic, or in a column topic")
        if topic is not None and "topic" in names:
            faults.append(
                f"the option topic names {topic}, and each row names a topic; remove the option, or"
                ' the column: drop("topic")'
            )
        if "key" in names and "keys" in names:
            faults.append("the columns key and keys exclude each other; remove one")
        if key_column is not None and key_column not in names:
            faults.append(f"option idempotencyKeyColumn: there is no column {key_column}")
        if texts := [fault for fault in faults if fault]:
            raise OptionError(f"{'; '.join(texts)}. Choose the columns with select")
        self._topic = topic
        self._key_column = key_column

    def key_of(self, row: Mapping[str, Any]) -> str | None:
        """Return the row's own idempotency key; None if rows have none."""
        if self._key_column is None:
            return None
        key = row[self._key_column]
        if not key or not str(key).isascii() or not str(key).isprintable() or " " in str(key):
            raise RowError(
                f"column {self._key_column}: expected an idempotency key of visible ASCII"
                f" characters, found {key!r}"
            )
        return str(key)

    def message_of(self, row: Mapping[str, Any]) -> Message:
        """Return the message of a row.

        Raises:
            RowError: The row has no topic or no body, or a broker would interpret a property.
        """
        topic = self._topic or row["topic"]
        if not topic:
            raise RowError(f"column topic: expected a topic, found {topic!r}")
        keys = _keys_of(row)
        sharding_key = row.get("sharding_key")
        message: dict[str, Any] = {
            "tag": row.get("tag"),
            "keys": keys,
            "properties": _properties_of(row),
            "sharding_key": sharding_key,
            "flag": row.get("flag") or 0,
        }
        if row.get("deleted") and not keys and not sharding_key:
            raise RowError("a deletion needs the key that it deletes: key, keys or sharding_key")
        if row.get("deliver_at") is not None:
            message["deliver_at"] = row["deliver_at"].isoformat()
        text = b'{"body": %b, %b' % (_body_of(row), json.dumps(message).encode()[1:])
        return Message(topic, sharding_key, text)


def _fault(name: str, kind: DataType, key_column: str | None) -> str | None:
    types = SINK_COLUMNS.get(name)
    if name == key_column:
        types = types or ("STRING",)
    if types is None:
        fix = _KAFKA.get(name, f"valid columns: {', '.join(SINK_COLUMNS)}")
        return f"unknown column {name}, whose values would be lost: {fix}"
    if _type_of(kind) not in types:
        return f"column {name}: expected {' or '.join(types)}, found {kind.simpleString().upper()}"
    return None


def _type_of(kind: DataType) -> str | None:
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType):
        return "ARRAY<STRING>"
    if (
        isinstance(kind, MapType)
        and isinstance(kind.keyType, StringType)
        and isinstance(kind.valueType, StringType)
    ):
        return "MAP<STRING, STRING>"
    names = (
        (StringType, "STRING"),
        (BinaryType, "BINARY"),
        (TimestampType, "TIMESTAMP"),
        (IntegerType, "INT"),
        (BooleanType, "BOOLEAN"),
    )
    return next((name for type_, name in names if isinstance(kind, type_)), None)


def _keys_of(row: Mapping[str, Any]) -> list[str]:
    if row.get("key") is not None:
        return [row["key"]]
    keys = list(row.get("keys") or ())
    if None in keys:
        raise RowError("column keys: expected texts, found null among them")
    return keys


def _properties_of(row: Mapping[str, Any]) -> dict[str, str]:
    properties = dict(row.get("properties") or ())
    for name, value in properties.items():
        if value is None:
            raise RowError(f"column properties: expected a text for {name!r}, found null")
    if row.get("deleted"):
        properties[DELETED_PROPERTY] = "true"
    return properties


def _body_of(row: Mapping[str, Any]) -> bytes:
    body = row["body"]
    if not body and row.get("deleted"):
        body = _DELETED_BODY
    if not body:
        found = "null" if body is None else "an empty one"
        raise RowError(
            f"column body: expected a body, found {found}; to say that a key is deleted, set"
            " the column deleted"
        )
    if isinstance(body, str):
        return b'{"text": %b}' % json.dumps(body).encode()
    return b'{"base64": "%b"}' % base64.b64encode(body)
