"""Typed columns from JSON bodies."""

from __future__ import annotations

import sys
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StructType

from eruca.exporting.errors import OptionError
from eruca_spark.bodies.schema import (
    CORRUPT,
    FIELDS_MAX,
    NAME,
    BodySchema,
    from_json,
    struct_of,
)

SAMPLE_ROWS_MAX: Final = 10_000
_SAMPLE_BODY_SIZE_MAX: Final = 64 * 1024  # larger bodies are not in the sample
_OBJECT_BEGINS: Final = r"^[ \t\r\n]*\{"
_OBJECT_ENDS: Final = r"\}[ \t\r\n]*$"


def inferred_schema(rows: DataFrame) -> BodySchema:
    """Return the schema of some of the bodies; fields without a usable name are left out.

    Raises:
        OptionError: No body of the sample is a JSON object.
    """
    text = f.col("body").cast("string")
    small = (f.octet_length("body") <= _SAMPLE_BODY_SIZE_MAX) & f.is_valid_utf8(text)
    sample = rows.where(small).select(text.alias("text")).limit(SAMPLE_ROWS_MAX)
    # The executors infer: the bodies together may be larger than the driver's memory.
    found: StructType = rows.sparkSession.read.json(sample).schema
    fields: dict[str, str] = {}
    left_out = []
    lower: set[str] = set()
    for field in found.fields:
        if field.name == CORRUPT:
            continue
        type_ = _ddl(field.dataType)
        if NAME.fullmatch(field.name) and field.name.lower() not in lower and type_:
            fields[field.name] = type_
            lower.add(field.name.lower())
        else:
            left_out.append(field.name)
    if left_out:
        sys.stderr.write(f"no columns for fields of bodies: {', '.join(map(repr, left_out))}\n")
    if not 0 < len(fields) <= FIELDS_MAX:
        raise OptionError(
            f"body-schema: expected 1 to {FIELDS_MAX} fields in a sample of at most"
            f" {SAMPLE_ROWS_MAX} bodies, found {len(fields)}; give the schema in a file"
        )
    return BodySchema(fields)


def parsed_json(schema: BodySchema) -> Column:
    """Return a struct of the fields in the column ``body``."""
    return from_json(_text(), struct_of(schema.types()))


def json_reason(schema: BodySchema, parsed: Column) -> Column:
    """Return the reason for which a body does not fit; null: it fits.

    Args:
        schema: The fields.
        parsed: The value of :func:`parsed_json`.
    """
    text = _text()
    misfits = [
        f.when(from_json(text, struct_of({name: type_}))[CORRUPT].isNotNull(), f.lit(name))
        for name, type_ in schema.types().items()
    ]
    is_one_value = text.rlike(_OBJECT_ENDS) & f.coalesce(_is_one_value(text), f.lit(False))
    return (
        f.when(~f.is_valid_utf8(text), f.lit("the body is not UTF-8"))
        .when(~text.rlike(_OBJECT_BEGINS), f.lit("the body is not a JSON object"))
        .when(~is_one_value, f.lit("the body is not valid JSON"))
        .when(
            parsed[CORRUPT].isNotNull(),
            f.concat(
                f.lit("fields do not have the types of their columns: "),
                f.array_join(f.array(*misfits), ", "),
            ),
        )
    )


def _text() -> Column:
    return f.col("body").cast("string")


def _is_one_value(text: Column) -> Column:
    """Tell whether a text is one JSON value; null, as false: it is none.

    Parsers stop at the end of the first value, whatever follows it. So the text is parsed as the
    element of an array. A text with ``]`` may end that array itself: then an element behind the
    text changes no length.
    """
    alone = f.json_array_length(f.concat(f.lit("["), text, f.lit("]")))
    followed = f.json_array_length(f.concat(f.lit("["), text, f.lit(",0]")))
    return (alone == 1) & (~text.contains("]") | (followed == 2))


def _ddl(type_: DataType) -> str | None:
    """Return a type as text; None if names in it cannot be written without quotes."""
    text = type_.simpleString()
    try:
        return text if DataType.fromDDL(text) == type_ else None
    except PySparkException:
        return None
