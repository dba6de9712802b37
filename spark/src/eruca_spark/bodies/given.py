"""The option ``--body-schema``: which bodies become columns, by which files."""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from eruca.exporting.errors import OptionError
from eruca_spark.bodies.decoders.columns import ddl_of
from eruca_spark.bodies.decoders.decoder import ID_MAX, PLAIN, Description, Schema, schema_maker
from eruca_spark.bodies.decoders.errors import DescriptionError
from eruca_spark.bodies.schema import CORRUPT, FIELDS_MAX, NAME, NO_PROTOBUF, BodySchema

INFER: Final[Literal["infer"]] = "infer"
_WITH_ID: Final = re.compile(r"([0-9]+)=(.+)", re.DOTALL)
_AVRO: Final = ".avsc"
_DESCRIPTOR_SETS: Final = (".desc", ".pb", ".binpb", ".protoset", ".fds", ".dsc")
# Files that people give instead, and how to make the right one.
_WRONG: Final = {
    ".proto": "compile it, with protoc --include_imports --descriptor_set_out=FILE.desc FILE.proto",
    ".avdl": "convert it to FILE.avsc, with avro-tools idl2schemata",
    ".avro": "this is a file of rows; write its schema to FILE.avsc, with avro-tools getschema",
}


def given_bodies(
    texts: Sequence[str] | None, message: str | None
) -> BodySchema | Literal["infer"] | None:
    """Return what the options ``--body-schema`` and ``--body-message`` describe.

    Args:
        texts: ``infer``, a file, or files with the ids that bodies begin with, ``17=FILE``.
        message: Protobuf's type of messages.

    Raises:
        OptionError: A file is unreadable or invalid, or does not fit the others.
    """
    if not texts:
        if message is not None:
            raise OptionError(
                "body-message: it names a message in the file of --body-schema, which is missing"
            )
        return None
    if INFER in texts:
        if len(texts) > 1 or message is not None:
            raise OptionError("body-schema: infer is for JSON bodies, and stands alone")
        return INFER
    files = _by_id(texts)
    for path in files.values():
        if (fix := _WRONG.get(path.suffix.lower())) is not None:
            raise OptionError(f"body-schema: {path}: {fix}")
        if message is None and path.suffix.lower() in _DESCRIPTOR_SETS:
            raise OptionError(_without_message(path))
    if all(path.suffix.lower() == _AVRO for path in files.values()):
        if message is not None:
            raise OptionError(f"body-message: it is for Protobuf, but {texts[0]} is Avro's")
        schemas = {one: _avro_schema(path) for one, path in files.items()}
        return _described(Description("avro", schemas), files)
    if message is not None:
        sets = {one: _descriptor_set(path, message) for one, path in files.items()}
        return _described(Description("protobuf", sets, message), files)
    if len(files) > 1 or PLAIN not in files:
        raise OptionError(
            f"body-schema: expected files of one kind, {_AVRO} or descriptor sets with"
            f" --body-message; found {', '.join(texts)}"
        )
    return _json_schema(files[PLAIN])


def _by_id(texts: Sequence[str]) -> dict[str, Path]:
    """Return the files by the id of their schema."""
    files: dict[str, Path] = {}
    for text in texts:
        found = _WITH_ID.fullmatch(text)
        schema_id = str(int(found[1])) if found else PLAIN
        if found and int(found[1]) > ID_MAX:
            raise OptionError(f"body-schema: expected an id of 0 to {ID_MAX}, found {found[1]}")
        if schema_id in files:
            raise OptionError(
                f"body-schema: the id {schema_id} is given twice"
                if found
                else "body-schema: expected ID=FILE for each of several files, where ID is the"
                f" number that bodies begin with; found {text}"
            )
        files[schema_id] = Path(found[2] if found else text)
    if PLAIN in files and len(files) > 1:
        raise OptionError(
            "body-schema: expected ID=FILE for each of several files, where ID is the number that"
            f" bodies begin with; found {files[PLAIN]}"
        )
    return files


def _json_schema(path: Path) -> BodySchema:
    text = _text(path)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None  # the error is below
    if isinstance(document, dict) and document.get("type") == "record" and "fields" in document:
        raise OptionError(f"body-schema: {path} is a schema of Avro; name it FILE{_AVRO}")
    return BodySchema.from_json(text, str(path))


def _avro_schema(path: Path) -> object:
    try:
        document: object = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise OptionError(f"body-schema: {path} is not JSON: {error}") from error
    return document


def _descriptor_set(path: Path, message: str) -> str:
    try:
        from eruca_spark.bodies.decoders.protobuf import needed_files
    except ImportError as error:
        raise OptionError(NO_PROTOBUF) from error

    try:
        return b64encode(needed_files(_bytes(path), message)).decode()
    except DescriptionError as error:
        name = "body-message" if "has no message" in str(error) else "body-schema"
        raise OptionError(f"{name}: {path}: {error}") from error


def _without_message(path: Path) -> str:
    try:
        from eruca_spark.bodies.decoders.protobuf import message_names
    except ImportError:
        return NO_PROTOBUF

    try:
        names = message_names(_bytes(path))
    except DescriptionError as error:
        return f"body-schema: {path}: {error}"
    return (
        f"body-schema: name the message of {path} with --body-message; it has:"
        f" {', '.join(names) or 'no message':.500}"
    )


def _described(description: Description, files: dict[str, Path]) -> BodySchema:
    """Return the columns of all schemas."""
    fields: dict[str, str] = {}
    origins: dict[str, Path] = {}
    for schema_id, path in files.items():
        try:
            schema = schema_maker(description)(description.schemas[schema_id])
        except DescriptionError as error:
            raise OptionError(f"body-schema: {path}: {error}") from error
        for name, type_ in _fields(schema, path).items():
            if fields.setdefault(name, type_) != type_:
                raise OptionError(
                    f"body-schema: field {name} is {fields[name]} in {origins[name]}, but {type_}"
                    f" in {path}; readers expect one type in all files"
                )
            origins.setdefault(name, path)
    if len({name.lower() for name in fields}) != len(fields):
        raise OptionError("body-schema: names of fields of these files differ only in case")
    if len(fields) > FIELDS_MAX:
        raise OptionError(f"body-schema: expected at most {FIELDS_MAX} fields, found {len(fields)}")
    return BodySchema(fields, description)


def _fields(schema: Schema, path: Path) -> dict[str, str]:
    """Return the types of a schema's fields, and name those that get no column."""
    fields: dict[str, str] = {}
    lower: set[str] = set()
    for name, column in schema.columns.items():
        why = column.why
        if not NAME.fullmatch(name) or name.lower() == CORRUPT:
            why = "its name is too long or taken"
        elif name.lower() in lower:
            why = "another name differs only in case"
        if column.type is None or why:
            sys.stderr.write(f"no column for field {name} of {path}: {why}\n")
            continue
        fields[name] = ddl_of(column.type)
        lower.add(name.lower())
    if not fields:
        raise OptionError(f"body-schema: no field of {path} can be a column")
    return fields


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode()
    except UnicodeDecodeError as error:
        raise OptionError(f"body-schema: {path} cannot be read: {error}") from error


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OptionError(f"body-schema: {path} cannot be read: {error}") from error
