"""Compare a table's columns with those of an export. Pure."""

from __future__ import annotations

import pyarrow as pa

from eruca.tables.batches import TableError


def missing_columns(name: str, held: pa.Schema, exported: pa.Schema) -> pa.Schema:
    """Return the columns that table *name* lacks.

    A table may have more columns; they stay null in new rows.

    Raises:
        TableError: A column has another type, or a column of the table allows no nulls.
    """
    for field in held:
        if not field.nullable:
            raise TableError(
                f"{name}: expected column {field.name} to allow nulls, which rows of damaged"
                " messages have; drop its NOT NULL, or export into a new table"
            )
    lacking = []
    for field in exported:
        at = held.get_field_index(field.name)
        if at < 0:
            lacking.append(field)
        elif kind_of(held.field(at).type) != kind_of(field.type):
            raise TableError(
                f"{name}: expected type {kind_of(field.type)} for column {field.name}, found"
                f" {kind_of(held.field(at).type)}; change the column, or export into a new table"
            )
    return pa.schema(lacking)


def kind_of(type_: pa.DataType) -> str:
    """Return a type's name, the same for all of Arrow's layouts of it."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"list<{kind_of(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"map<{kind_of(type_.key_type)}, {kind_of(type_.item_type)}>"
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return "string"
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return "binary"
    return str(type_)
