"""Types of columns: those of Arrow, and how Spark writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

# Types that use each other twice make a struct of 2^n members. Spark's planner is slow before.
MEMBERS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class Column:
    """The type of a column; without one, the reason that there is none.

    Attributes:
        type: The type.
        why: The reason.
        members: The number of values in it, with those of structs in structs.
    """

    type: pa.DataType | None = None
    why: str = ""
    members: int = 1


def list_type(item: Column) -> Column:
    """Return the type of lists."""
    return (
        item
        if item.type is None
        else Column(pa.list_(pa.field("element", item.type)), members=item.members)
    )


def map_type(key: pa.DataType, value: Column) -> Column:
    """Return the type of maps."""
    return value if value.type is None else Column(pa.map_(key, value.type), members=value.members)


def struct_type(fields: Mapping[str, Column]) -> Column:
    """Return the type of structs, of at most ``MEMBERS_MAX`` members."""
    if not fields:
        return Column(why="it has no fields")
    lower = [name.lower() for name in fields]
    if len({*lower}) != len(lower):
        return Column(why="names of its fields differ only in case")
    count = sum(column.members for column in fields.values())
    if count > MEMBERS_MAX:
        return Column(why=f"it has more than {MEMBERS_MAX} members")
    members = []
    for name, column in fields.items():
        if column.type is None:
            return Column(why=f"{name}: {column.why}")
        members.append(pa.field(name, column.type))
    return Column(pa.struct(members), members=count)


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
