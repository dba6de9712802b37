"""Typed columns from JSON bodies: their schema, and what does not fit it.

A schema names fields of the bodies, and Spark's types. Each field becomes a column ``body_NAME`` of
the lake. The lake keeps the schema. Fields may be added later; a type never changes, so that a
reader finds one type in all files.

A message whose body does not fit is not lost: its row is written below ``_rejected``, with the
reason. Bodies stay in the column ``body`` in both places.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StructType

from eruca.exporting.columns import DAMAGE
from eruca.exporting.errors import OptionError
from eruca_spark.lake_files import LakeFiles

BODY_SCHEMA_FILE: Final = "_body_schema.json"
INFER: Final[Literal["infer"]] = "infer"
PREFIX: Final = "body_"
REASON: Final = "reject_reason"  # of a row below _rejected
SAMPLE_ROWS_MAX: Final = 10_000
_SAMPLE_BODY_SIZE_MAX: Final = 64 * 1024  # larger bodies are not in the sample
_FIELDS_MAX: Final = 500
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_OBJECT_BEGINS: Final = r"^[ \t\r\n]*\{"
_OBJECT_ENDS: Final = r"\}[ \t\r\n]*$"
_PARSED: Final = "_parsed"
_CORRUPT: Final = "_corrupt_record"


@dataclass(frozen=True, slots=True)
class BodySchema:
    """The fields of bodies that become columns, with Spark's types; empty: no typed columns."""

    fields: Mapping[str, str]

    @classmethod
    def from_json(cls, text: str, origin: str) -> BodySchema:
        """Return the schema in a JSON object of types by name, ``{"amount": "double"}``.

        Args:
            text: The object.
            origin: The place of the text, for errors.

        Raises:
            OptionError: The text is no schema.
        """
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise OptionError(f"body-schema: {origin} is not JSON: {error}") from error
        if not isinstance(fields, dict) or not 0 < len(fields) <= _FIELDS_MAX:
            raise OptionError(
                f"body-schema: expected an object of 1 to {_FIELDS_MAX} types by name in {origin},"
                ' such as {"amount": "double"}'
            )
        seen: dict[str, str] = {}
        for name, type_ in fields.items():
            if not _NAME.fullmatch(name) or name == _CORRUPT:
                raise OptionError(
                    f"body-schema: field {name!r} of {origin}: expected a name of letters, digits"
                    " and _, which does not begin with a digit"
                )
            if not isinstance(type_, str):
                raise OptionError(
                    f"body-schema: field {name} of {origin}: expected a type of Spark as text, such"
                    f" as bigint or array<string>; found {type_!r}"
                )
            if (other := seen.setdefault(name.lower(), name)) != name:
                raise OptionError(
                    f"body-schema: fields {other} and {name} of {origin} differ only in case"
                )
        return cls(fields)

    def to_json(self) -> str:
        """Return the stored form."""
        return json.dumps(self.fields, indent=1, ensure_ascii=False) + "\n"

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the lake, with Spark's types."""
        return {f"{PREFIX}{name}": type_ for name, type_ in self.fields.items()}

    def types(self) -> dict[str, DataType]:
        """Return Spark's types by field; a session must have been started.

        Raises:
            OptionError: Spark does not know a type.
        """
        types = {}
        for name, type_ in self.fields.items():
            try:
                types[name] = DataType.fromDDL(type_)
                SparkSession.active().range(0).select(
                    _from_json(f.lit("{}"), _struct({name: types[name]}))
                )
            except PySparkException as error:
                raise OptionError(f"body-schema: field {name}: unknown type {type_!r}") from error
        return types

    def extended(self, wanted: BodySchema) -> BodySchema:
        """Return this schema with the fields that only *wanted* has, at the end.

        Raises:
            OptionError: A field has another type.
        """
        # All types are checked before anything is kept.
        mine, theirs = self.types(), wanted.types()
        by_name = {name.lower(): name for name in mine}
        for name, type_ in theirs.items():
            known = by_name.get(name.lower())
            if known is None:
                continue
            if known != name:
                raise OptionError(
                    f"body-schema: field {name} is {known} in the lake; write it the same way"
                )
            if mine[name] != type_:
                raise OptionError(
                    f"body-schema: field {name} is {self.fields[name]} in the lake, not"
                    f" {wanted.fields[name]}; a type cannot change, because readers expect one type"
                    " in all files. Keep the type, or export into a new lake"
                )
        return BodySchema({**self.fields, **wanted.fields, **self.fields})


NO_SCHEMA: Final = BodySchema({})


def given_schema(text: str) -> BodySchema:
    """Return the schema in a file.

    Raises:
        OptionError: The file is unreadable, or no schema.
    """
    try:
        return BodySchema.from_json(Path(text).read_text(), text)
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"body-schema: {text} cannot be read: {error}") from error


def stored_schema(files: LakeFiles) -> BodySchema:
    """Return the schema that a lake keeps; an empty one if it has none."""
    text = files.read(BODY_SCHEMA_FILE)
    return NO_SCHEMA if text is None else BodySchema.from_json(text, BODY_SCHEMA_FILE)


def settled_schema(files: LakeFiles, wanted: BodySchema | None) -> BodySchema:
    """Return the schema to write with, and keep it in the lake.

    Raises:
        OptionError: A type is unknown, or another one than the lake has.
    """
    stored = stored_schema(files)
    if wanted is None:
        return stored
    settled = stored.extended(wanted)
    if settled != stored:
        files.write(BODY_SCHEMA_FILE, settled.to_json())
    return settled


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
        if field.name == _CORRUPT:
            continue
        type_ = _ddl(field.dataType)
        if _NAME.fullmatch(field.name) and field.name.lower() not in lower and type_:
            fields[field.name] = type_
            lower.add(field.name.lower())
        else:
            left_out.append(field.name)
    if left_out:
        sys.stderr.write(f"no columns for fields of bodies: {', '.join(map(repr, left_out))}\n")
    if not 0 < len(fields) <= _FIELDS_MAX:
        raise OptionError(
            f"body-schema: expected 1 to {_FIELDS_MAX} fields in a sample of at most"
            f" {SAMPLE_ROWS_MAX} bodies, found {len(fields)}; give the schema in a file"
        )
    return BodySchema(fields)


def with_body_columns(rows: DataFrame, schema: BodySchema) -> DataFrame:
    """Add the typed columns, and the reason for which a body does not fit; null: it fits.

    A damaged message has no body; its columns are null, as all others.
    """
    text = f.col("body").cast("string")
    struct = _struct(schema.types())
    parsed = rows.withColumn(_PARSED, _from_json(text, struct))
    misfits = [
        f.when(_from_json(text, _struct({name: type_}))[_CORRUPT].isNotNull(), f.lit(name))
        for name, type_ in schema.types().items()
    ]
    is_one_value = text.rlike(_OBJECT_ENDS) & f.coalesce(_is_one_value(text), f.lit(False))
    reason = (
        f.when(f.col(DAMAGE).isNotNull(), f.lit(None))
        .when(f.col("body").isNull(), f.lit("the message has no body"))
        .when(~f.is_valid_utf8(text), f.lit("the body is not UTF-8"))
        .when(~text.rlike(_OBJECT_BEGINS), f.lit("the body is not a JSON object"))
        .when(~is_one_value, f.lit("the body is not valid JSON"))
        .when(
            f.col(_PARSED)[_CORRUPT].isNotNull(),
            f.concat(
                f.lit("fields do not have the types of their columns: "),
                f.array_join(f.array(*misfits), ", "),
            ),
        )
    )
    columns = [f.col(_PARSED)[name].alias(f"{PREFIX}{name}") for name in schema.fields]
    return parsed.select(*rows.columns, *columns, reason.alias(REASON))


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


def _struct(types: Mapping[str, DataType]) -> StructType:
    struct = StructType()
    for name, type_ in types.items():
        struct = struct.add(name, type_)
    return struct.add(_CORRUPT, "string")


def _from_json(text: Column, struct: StructType) -> Column:
    options: dict[str, Any] = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return f.from_json(text, struct, options)
