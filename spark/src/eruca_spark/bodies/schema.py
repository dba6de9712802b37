"""The fields of bodies that become columns, kept in the lake.

A schema names fields of the bodies, and Spark's types. Each field becomes a column ``body_NAME`` of
the lake. The lake keeps the schema. Fields may be added later; a type never changes, so that a
reader finds one type in all files. If bodies are not JSON, the schema has their description, too.

A message whose body does not fit is not lost: its row is written below ``_rejected``, with the
reason. Bodies stay in the column ``body`` in both places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StructType

from eruca.exporting.errors import OptionError
from eruca_spark.bodies.decoders.decoder import FORMAT_NAMES, Description, Format
from eruca_spark.lake_files import LakeFiles

BODY_SCHEMA_FILE: Final = "_body_schema.json"
PREFIX: Final = "body_"
REASON: Final = "reject_reason"  # of a row below _rejected
CORRUPT: Final = "_corrupt_record"  # Spark compares names without case: no field may have it
FIELDS_MAX: Final = 500
NO_PROTOBUF: Final = (
    "body-schema: Protobuf bodies need the package protobuf, on the driver and on each executor:"
    " install eruca-spark[protobuf]"
)
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


@dataclass(frozen=True, slots=True)
class BodySchema:
    """The fields of bodies that become columns; empty: no typed columns.

    Attributes:
        fields: Spark's types by field.
        description: The schemas of Avro or Protobuf; None: bodies are JSON.
    """

    fields: Mapping[str, str]
    description: Description | None = None

    @classmethod
    def from_json(cls, text: str, origin: str) -> BodySchema:
        """Return the schema in a JSON object of types by name, ``{"amount": "double"}``.

        Args:
            text: The object.
            origin: The place of the text, for errors.

        Raises:
            OptionError: The text is no schema.
        """
        return cls(_checked_fields(_parsed(text, origin), origin))

    @classmethod
    def from_stored(cls, text: str) -> BodySchema:
        """Return the schema that a lake keeps.

        Raises:
            OptionError: The text is no schema.
        """
        document = _parsed(text, BODY_SCHEMA_FILE)
        if not isinstance(document, dict) or not isinstance(document.get("fields"), dict):
            return cls(_checked_fields(document, BODY_SCHEMA_FILE))
        fields = _checked_fields(document["fields"], BODY_SCHEMA_FILE)
        formats: Mapping[str, Format] = {one: one for one in FORMAT_NAMES}
        format_, schemas = formats.get(str(document.get("format"))), document.get("schemas")
        message = document.get("message")
        if (
            format_ is None
            or not (isinstance(schemas, dict) and schemas)
            or not all(one.isdecimal() or schemas.keys() == {""} for one in schemas)
            or not isinstance(message, str | None)
        ):
            raise OptionError(f"body-schema: {BODY_SCHEMA_FILE} of the lake is damaged")
        return cls(fields, Description(format_, schemas, message))

    def to_json(self) -> str:
        """Return the stored form."""
        document: Mapping[str, Any] = self.fields
        if self.description is not None:
            document = {
                "format": self.description.format,
                "fields": self.fields,
                "message": self.description.message,
                "schemas": self.description.schemas,
            }
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the lake, with Spark's types."""
        return {f"{PREFIX}{name}": type_ for name, type_ in self.fields.items()}

    @property
    def format_name(self) -> str:
        """The format of the bodies, for people."""
        return "JSON" if self.description is None else FORMAT_NAMES[self.description.format]

    def types(self) -> dict[str, DataType]:
        """Return Spark's types by field; a session must have been started.

        Raises:
            OptionError: Spark does not know a type.
        """
        types = {}
        for name, type_ in self.fields.items():
            try:
                types[name] = DataType.fromDDL(type_)
                if self.description is None:
                    SparkSession.active().range(0).select(
                        from_json(f.lit("{}"), struct_of({name: types[name]}))
                    )
            except (AnalysisException, ParseException) as error:
                raise OptionError(f"body-schema: field {name}: unknown type {type_!r}") from error
        return types

    def contains(self, wanted: BodySchema) -> bool:
        """Tell, by the texts alone, whether :meth:`extended` would add nothing."""
        return (
            wanted.fields.items() <= self.fields.items()
            and self._extended_description(wanted) == self.description
        )

    def extended(self, wanted: BodySchema) -> BodySchema:
        """Return this schema with the fields that only *wanted* has, at the end.

        Raises:
            OptionError: A field has another type, or bodies another format.
        """
        self.check_format(wanted)
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
        return BodySchema(
            {**self.fields, **wanted.fields, **self.fields}, self._extended_description(wanted)
        )

    def check_format(self, wanted: BodySchema) -> None:
        """Check that *wanted* is of the same format.

        Raises:
            OptionError: It is not.
        """
        if self.fields and self.format_name != wanted.format_name:
            raise OptionError(
                f"body-schema: bodies of this lake are {self.format_name}, not"
                f" {wanted.format_name}; export into a new lake"
            )

    def _extended_description(self, wanted: BodySchema) -> Description | None:
        """Return the schemas of both; those of *wanted* replace those of the same id."""
        mine, theirs = self.description, wanted.description
        if mine is None or theirs is None:
            return theirs
        if mine.has_header != theirs.has_header:
            has, gets = ("", "without") if mine.has_header else ("no ", "with")
            raise OptionError(
                f"body-schema: bodies of this lake have {has}schema ids; export those {gets} ids"
                " into a new lake"
            )
        if mine.message != theirs.message:
            raise OptionError(
                f"body-message: bodies of this lake are {mine.message}, not {theirs.message};"
                " export into a new lake"
            )
        return replace(theirs, schemas={**mine.schemas, **theirs.schemas})


NO_SCHEMA: Final = BodySchema({})


def stored_schema(files: LakeFiles) -> BodySchema:
    """Return the schema that a lake keeps; an empty one if it has none."""
    text = files.read(BODY_SCHEMA_FILE)
    return NO_SCHEMA if text is None else BodySchema.from_stored(text)


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


def struct_of(types: Mapping[str, DataType]) -> StructType:
    """Return the struct of these fields, and of the column of texts that do not fit it."""
    struct = StructType()
    for name, type_ in types.items():
        struct = struct.add(name, type_)
    return struct.add(CORRUPT, "string")


def from_json(text: Column, struct: StructType) -> Column:
    """Return the values in a JSON text; what does not fit is in the field ``CORRUPT``."""
    options: dict[str, Any] = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return f.from_json(text, struct, options)


def _parsed(text: str, origin: str) -> object:
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"body-schema: {origin} is not JSON: {error}") from error
    return document


def _checked_fields(fields: object, origin: str) -> dict[str, str]:
    if not isinstance(fields, dict) or not 0 < len(fields) <= FIELDS_MAX:
        raise OptionError(
            f"body-schema: expected an object of 1 to {FIELDS_MAX} types by name in {origin},"
            ' such as {"amount": "double"}'
        )
    seen: dict[str, str] = {}
    for name, type_ in fields.items():
        if not NAME.fullmatch(name) or name.lower() == CORRUPT:
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
    return fields
