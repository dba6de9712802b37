"""Types of columns: those of Arrow, and how Spark writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as kinds


@dataclass(frozen=True, slots=True)
class Column:
    """The type of a column; without one, the reason that there is none."""

    type: pa.DataType | None = None
    why: str = ""


def list_type(item: Column) -> Column:
    """Return the type of lists."""
    return item if item.type is None else Column(pa.list_(pa.field("element", item.type)))


def map_type(key: pa.DataType, value: Column) -> Column:
    """Return the type of maps."""
    return value if value.type is None else Column(pa.map_(key, value.type))


def struct_type(fields: Mapping[str, Column]) -> Column:
    """Return the type of structs."""
    if not fields:
        return Column(why="it has no fields")
    lower = [name.lower() for name in fields]
    if len({*lower}) != len(lower):
        return Column(why="names of its fields differ only in case")
    members = []
    for name, column in fields.items():
        if column.type is None:
            return Column(why=f"{name}: {column.why}")
        members.append(pa.field(name, column.type))
    return Column(pa.struct(members))


def ddl_of(type_: pa.DataType) -> str:
    """Return a type as Spark writes it."""
    if kinds.is_struct(type_):
        return f"struct<{','.join(f'{one.name}:{ddl_of(one.type)}' for one in type_)}>"
    if kinds.is_list(type_):
        return f"array<{ddl_of(type_.value_type)}>"
    if kinds.is_map(type_):
        return f"map<{ddl_of(type_.key_type)},{ddl_of(type_.item_type)}>"
    if kinds.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if kinds.is_timestamp(type_):
        return "timestamp" if type_.tz else "timestamp_ntz"
    return _PLAIN[type_]


_PLAIN = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}
