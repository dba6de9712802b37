"""Decode bodies into columns, batch by batch.

Bodies may begin with the header of Confluent's schema registry, which has the id of their schema.
Then each schema has its id, and another id is a reason to reject a body. Otherwise there is one
schema. A body without a header does not tell its schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import pyarrow as pa

from eruca_spark.bodies.decoders.avro import AvroSchema
from eruca_spark.bodies.decoders.avro_values import read_long
from eruca_spark.bodies.decoders.columns import Column
from eruca_spark.bodies.decoders.errors import BodyError

PLAIN: Final = ""  # the id of the schema of bodies without a header
ID_MAX: Final = 2**31 - 1
_HEADER_BYTES: Final = 5  # a zero and the id
_NO_FIELD: Final = ""  # no field has this name

Format = Literal["avro", "protobuf"]
FORMAT_NAMES: Final[Mapping[Format, str]] = {"avro": "Avro", "protobuf": "Protobuf"}


@dataclass(frozen=True, slots=True)
class Description:
    """The schemas of bodies, as a lake keeps them.

    Attributes:
        format: The format of all bodies.
        schemas: By id: a schema of Avro parsed from JSON, or a descriptor set in base64.
        message: Protobuf's type of messages.
    """

    format: Format
    schemas: Mapping[str, Any]
    message: str | None = None

    @property
    def has_header(self) -> bool:
        """True if bodies begin with the id of their schema."""
        return PLAIN not in self.schemas


class Schema(Protocol):
    """A schema that reads bodies."""

    columns: dict[str, Column]

    def read(self, body: bytes) -> Mapping[str, Any]:
        """Return the values of a body by field; raise BodyError if it does not fit."""


def schema_maker(description: Description) -> Callable[[Any], Schema]:
    """Return what makes a schema of one of ``description.schemas``.

    Raises:
        ImportError: The package protobuf is required, and missing.
    """
    if description.format == "avro":
        return AvroSchema
    # Here, because those who have no such bodies need not install its package.
    from eruca_spark.bodies.decoders.protobuf import message_maker

    return message_maker(description.message or "")


def compiled(description: Description) -> dict[str, Schema]:
    """Return the schemas by id.

    Raises:
        DescriptionError: One is invalid.
        ImportError: The package protobuf is required, and missing.
    """
    make = schema_maker(description)
    return {schema_id: make(one) for schema_id, one in description.schemas.items()}


class BodyDecoder:
    """Decodes bodies; executors get it within their tasks, and compile the schemas themselves."""

    def __init__(
        self, description: Description, columns: Mapping[str, pa.DataType], reason: str
    ) -> None:
        """Make a decoder.

        Args:
            description: The schemas.
            columns: The types of the fields that become columns, in their order.
            reason: The name of the column with the reason for which a body does not fit.

        Raises:
            ImportError: The package protobuf is required, and missing.
        """
        self._description = description
        # Executors cannot import this package. They get the code that this names.
        self._make = schema_maker(description)
        self._columns = dict(columns)
        self._reason = reason
        self._read: Callable[[bytes], Sequence[Any]] | None = None

    def decoded(self, bodies: pa.Array) -> pa.Array:
        """Return an array of structs with the values of *bodies*, and their reasons."""
        if self._read is None:
            self._read = self._reader()
        read = self._read
        names = [*self._columns]
        nothing = (None,) * len(names)
        rows: list[Sequence[Any]] = []
        reasons: list[str | None] = []
        for body in bodies.to_pylist():
            reason = None
            row: Sequence[Any] = nothing
            if body is not None:
                try:
                    row = read(body)
                except BodyError as error:
                    reason = str(error)
            rows.append(row)
            reasons.append(reason)
        of_columns = zip(*rows, strict=True) if rows else ((),) * len(names)
        arrays = [
            pa.array(values, type_)
            for values, type_ in zip(of_columns, self._columns.values(), strict=True)
        ]
        fields = [*names, self._reason]
        return pa.StructArray.from_arrays([*arrays, pa.array(reasons, pa.string())], fields)

    def _reader(self) -> Callable[[bytes], Sequence[Any]]:
        """Return what reads a body's values, in the order of the columns."""
        description = self._description
        schemas = {one: self._make(text) for one, text in description.schemas.items()}
        if not description.has_header:
            plain = self._row_reader(schemas[PLAIN])

            def read_plain(body: bytes) -> Sequence[Any]:
                if not body:
                    # Brokers refuse it, so it is not a producer's message with all defaults.
                    raise BodyError("the body is empty")
                try:
                    return plain(body)
                except BodyError as error:
                    raise _with_hint(error, body) from error

            return read_plain
        by_id = {int(one): (schema, self._row_reader(schema)) for one, schema in schemas.items()}
        known = ", ".join(map(str, sorted(by_id)))
        skip = _skip_indexes if description.format == "protobuf" else _skip_nothing

        def read_after_header(body: bytes) -> Sequence[Any]:
            if len(body) < _HEADER_BYTES or body[0] != 0:
                raise BodyError("the body does not begin with a schema id: a zero and 4 bytes")
            schema_id = int.from_bytes(body[1:_HEADER_BYTES], "big")
            found = by_id.get(schema_id)
            if found is None:
                raise BodyError(f"expected a schema id of {known}, found {schema_id}")
            schema, read_row = found
            return read_row(body[skip(schema, body) :])

        return read_after_header

    def _row_reader(self, schema: Schema) -> Callable[[bytes], Sequence[Any]]:
        """Return what reads the values of a schema's bodies, in the order of the columns."""
        names = []
        for name, type_ in self._columns.items():
            column = schema.columns.get(name)
            # A schema may lack the column that another one has, because its field has no type.
            names.append(name if column is not None and column.type == type_ else _NO_FIELD)
        read = schema.read

        def read_row(body: bytes) -> Sequence[Any]:
            return [*map(read(body).get, names)]

        return read_row


def _skip_nothing(_schema: Schema, _body: bytes) -> int:
    return _HEADER_BYTES


def _skip_indexes(schema: Any, body: bytes) -> int:  # noqa: ANN401 - a ProtobufMessage
    """Return the position behind the numbers that name the message in its file."""
    try:
        count, at = read_long(body, _HEADER_BYTES)
        path = []
        for _ in range(count):
            number, at = read_long(body, at)
            path.append(number)
    except IndexError as error:
        raise BodyError("the body ends in its header") from error
    if tuple(path or [0]) != schema.path:
        raise BodyError(f"the header names another message of its file: {path or [0]}")
    return at


def _with_hint(error: BodyError, body: bytes) -> BodyError:
    if len(body) <= _HEADER_BYTES or body[0] != 0:
        return error
    schema_id = int.from_bytes(body[1:_HEADER_BYTES], "big")
    if schema_id > ID_MAX:
        return error
    return BodyError(
        f"{error.text} (or the body begins with schema id {schema_id}: use --body-schema"
        f" {schema_id}=FILE)",
        error.path,
    )
