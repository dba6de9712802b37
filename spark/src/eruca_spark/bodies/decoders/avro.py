"""Avro's schemas: readers of bodies, and the types of columns.

Source: Apache Avro 1.12, specification. Types follow Spark's ``from_avro``, with two exceptions: a
union of numbers is a struct, as any union of several types, and a fixed of 16 bytes that is a UUID
is its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from eruca_spark.bodies.decoders.avro_values import (
    DECIMAL_DIGITS_MAX,
    EmptyItems,
    Read,
    array_reader,
    decimal_reader,
    enum_reader,
    fixed_reader,
    map_reader,
    member_reader,
    read_boolean,
    read_bytes,
    read_double,
    read_float,
    read_int,
    read_long,
    read_millis,
    read_null,
    read_string,
    record_reader,
    union_reader,
    uuid_reader,
)
from eruca_spark.bodies.decoders.columns import Column, list_type, map_type, struct_type
from eruca_spark.bodies.decoders.errors import BodyError, DescriptionError

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UTC_MICROS: Final = pa.timestamp("us", tz="UTC")
_LOCAL_MICROS: Final = pa.timestamp("us")


@dataclass(frozen=True, slots=True)
class Part:
    """A schema within a schema: how it is read, and as what.

    Attributes:
        read: The reader.
        column: The type of its column, or the reason that it has none.
    """

    read: Read
    column: Column


_NULL: Final = Part(read_null, Column(why="it is always null"))
_PRIMITIVES: Final[Mapping[str, Part]] = {
    "null": _NULL,
    "boolean": Part(read_boolean, Column(pa.bool_())),
    "int": Part(read_int, Column(pa.int32())),
    "long": Part(read_long, Column(pa.int64())),
    "float": Part(read_float, Column(pa.float32())),
    "double": Part(read_double, Column(pa.float64())),
    "bytes": Part(read_bytes, Column(pa.binary())),
    "string": Part(read_string, Column(pa.string())),
}
# Others, such as times of day, stay what they are annotated on.
_LOGICAL: Final[Mapping[tuple[str, str], Part]] = {
    ("int", "date"): Part(read_int, Column(pa.date32())),
    ("long", "timestamp-millis"): Part(read_millis, Column(_UTC_MICROS)),
    ("long", "timestamp-micros"): Part(read_long, Column(_UTC_MICROS)),
    ("long", "local-timestamp-millis"): Part(read_millis, Column(_LOCAL_MICROS)),
    ("long", "local-timestamp-micros"): Part(read_long, Column(_LOCAL_MICROS)),
}


class AvroSchema:
    """A schema of records.

    Attributes:
        columns: The type of each field's column, or the reason that it has none.
    """

    def __init__(self, document: object) -> None:
        """Compile a schema, parsed from JSON.

        Raises:
            DescriptionError: It is no schema, or not one of a record.
        """
        found = document.get("type") if isinstance(document, dict) else document
        if not isinstance(document, dict) or found not in ("record", "error"):
            raise DescriptionError(
                f'expected the schema of a record, {{"type": "record", …}}; found {found!r:.80}'
            )
        compiler = _Compiler()
        try:
            self.columns: dict[str, Column] = compiler.fields_of(document)
        except RecursionError as error:
            raise DescriptionError("it is nested too deeply") from error
        self._read = compiler.top
        self._empty = compiler.empty

    def read(self, body: bytes) -> Mapping[str, Any]:
        """Return the values of a body by field.

        Raises:
            BodyError: The body is not exactly one record of the schema.
        """
        self._empty.reset()
        try:
            values, end = self._read(body, 0)
        except RecursionError as error:
            raise BodyError("the body is nested too deeply") from error
        if end != len(body):
            raise BodyError(f"bytes behind the record: {len(body) - end}")
        record: dict[str, Any] = values
        return record


class _Compiler:
    """Compiles schemas; knows the named ones that it has seen."""

    def __init__(self) -> None:
        self._named: dict[str, Part] = {}
        self._open: dict[str, list[Read]] = {}  # records that are being compiled
        self.top: Read = read_null
        self.empty = EmptyItems()

    def fields_of(self, document: dict[str, Any]) -> dict[str, Column]:
        """Compile the outermost record; return the columns of its fields."""
        parts, self.top = self._record(document, "", "")
        return {name: part.column for name, part in parts.items()}

    def part(self, node: object, namespace: str, place: str) -> Part:
        """Compile a schema.

        Args:
            node: The schema, parsed from JSON.
            namespace: The namespace of names without one.
            place: The path of the field, for errors.
        """
        if isinstance(node, str):
            return self._reference(node, namespace, place)
        if isinstance(node, list):
            return self._union(node, namespace, place)
        if not isinstance(node, dict) or "type" not in node:
            raise _error(place, f"expected a schema of Avro, found {node!r:.80}")
        type_ = node["type"]
        if not isinstance(type_, str):
            return self.part(type_, namespace, place)
        if type_ in _PRIMITIVES:
            return _annotated(type_, _PRIMITIVES[type_], node)
        of_type: Mapping[str, Callable[[dict[str, Any], str, str], Part]] = {
            "record": self._nested_record,
            "error": self._nested_record,
            "enum": self._enum,
            "fixed": self._fixed,
            "array": self._array,
            "map": self._map,
        }
        if type_ in of_type:
            return of_type[type_](node, namespace, place)
        return self._reference(type_, namespace, place)

    def _reference(self, name: str, namespace: str, place: str) -> Part:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        for full in (_full_name(name, namespace), name):
            if full in self._open:
                return Part(_later(self._open[full]), Column(why=f"{full} contains itself"))
            if full in self._named:
                return self._named[full]
        raise _error(
            place,
            f"unknown type {name!r}; expected a type of Avro, or a name that the file defines"
            " before this place",
        )

    def _union(self, nodes: list[Any], namespace: str, place: str) -> Part:
        if not nodes:
            raise _error(place, "expected a union of at least one type, found []")
        if any(isinstance(node, list) for node in nodes):
            raise _error(place, "expected no union directly in a union")
        parts = [self.part(node, namespace, place) for node in nodes]
        is_null = [part is _NULL for part in parts]
        others = [part for part in parts if part is not _NULL]
        if sum(is_null) > 1:
            raise _error(place, "expected null once in a union")
        if len(others) <= 1:
            column = others[0].column if others else _NULL.column
            return Part(union_reader([part.read for part in parts]), column)
        names = iter([f"member{number}" for number in range(len(others))])
        reads = [
            part.read if part is _NULL else member_reader(part.read, next(names)) for part in parts
        ]
        columns = {f"member{number}": part.column for number, part in enumerate(others)}
        return Part(union_reader(reads), struct_type(columns))

    def _nested_record(self, node: dict[str, Any], namespace: str, place: str) -> Part:
        parts, read = self._record(node, namespace, place)
        part = Part(read, struct_type({name: one.column for name, one in parts.items()}))
        self._named[_name_of(node, namespace, place)[0]] = part
        return part

    def _record(
        self, node: dict[str, Any], namespace: str, place: str
    ) -> tuple[dict[str, Part], Read]:
        full, inner = _name_of(node, namespace, place)
        self._check_new(full, place)
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise _error(place, f'expected a list as "fields" of {full}, found {fields!r:.80}')
        reads: list[Read] = []
        self._open[full] = reads
        parts: dict[str, Part] = {}
        for field in fields:
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise _error(
                    place,
                    f"expected a field of {full} with a name of letters, digits and _; found"
                    f" {field!r:.80}",
                )
            within = f"{place}.{name}" if place else name
            if name in parts:
                raise _error(within, f"{full} has it twice")
            if "type" not in field:
                raise _error(within, 'it has no "type"')
            parts[name] = self.part(field["type"], inner, within)
        read = record_reader({name: part.read for name, part in parts.items()})
        reads.append(read)
        del self._open[full]
        return parts, read

    def _enum(self, node: dict[str, Any], namespace: str, place: str) -> Part:
        full, _ = _name_of(node, namespace, place)
        self._check_new(full, place)
        symbols = node.get("symbols")
        if (
            not isinstance(symbols, list)
            or not symbols
            or not all(isinstance(one, str) for one in symbols)
            or len({*symbols}) != len(symbols)
        ):
            raise _error(
                place, f'expected different texts as "symbols" of {full}, found {symbols!r:.80}'
            )
        part = Part(enum_reader(symbols), Column(pa.string()))
        self._named[full] = part
        return part

    def _fixed(self, node: dict[str, Any], namespace: str, place: str) -> Part:
        full, _ = _name_of(node, namespace, place)
        self._check_new(full, place)
        size = node.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise _error(
                place, f'expected a number of bytes as "size" of {full}, found {size!r:.80}'
            )
        read = fixed_reader(size)
        if node.get("logicalType") == "uuid" and size == 16:
            part = Part(uuid_reader(read), Column(pa.string()))
        else:
            part = _annotated("fixed", Part(read, Column(pa.binary())), node)
        self._named[full] = part
        return part

    def _array(self, node: dict[str, Any], namespace: str, place: str) -> Part:
        if "items" not in node:
            raise _error(place, 'the array has no "items"')
        item = self.part(node["items"], namespace, place)
        return Part(array_reader(item.read, self.empty), list_type(item.column))

    def _map(self, node: dict[str, Any], namespace: str, place: str) -> Part:
        if "values" not in node:
            raise _error(place, 'the map has no "values"')
        value = self.part(node["values"], namespace, place)
        return Part(map_reader(value.read), map_type(pa.string(), value.column))

    def _check_new(self, full: str, place: str) -> None:
        if full in self._named or full in self._open:
            raise _error(place, f"the name {full} is defined twice")


def _later(reads: Sequence[Read]) -> Read:
    """Return the reader of a record that is still being compiled, and will then be in *reads*."""

    def read(body: bytes, at: int) -> tuple[Any, int]:
        return reads[0](body, at)

    return read


def _annotated(type_: str, part: Part, node: dict[str, Any]) -> Part:
    """Return a type with its logical type; ignore an unknown or invalid one, as Avro demands."""
    logical = node.get("logicalType")
    if logical == "decimal" and type_ in ("bytes", "fixed"):
        precision, scale = node.get("precision"), node.get("scale", 0)
        if (
            type(precision) is int
            and type(scale) is int
            and 0 <= scale <= precision
            and 1 <= precision <= DECIMAL_DIGITS_MAX
        ):
            read = decimal_reader(part.read, precision, scale)
            return Part(read, Column(pa.decimal128(precision, scale)))
    return _LOGICAL.get((type_, str(logical)), part)


def _name_of(node: dict[str, Any], namespace: str, place: str) -> tuple[str, str]:
    """Return the full name of a named schema, and its namespace."""
    name = node.get("name")
    if not isinstance(name, str) or not all(_NAME.fullmatch(one) for one in name.split(".")):
        raise _error(place, f'expected a "name" of the {node["type"]}, found {name!r:.80}')
    given = node.get("namespace", namespace)
    if not isinstance(given, str):
        raise _error(place, f'expected a text as "namespace" of {name}, found {given!r:.80}')
    full = _full_name(name, given)
    return full, full.rpartition(".")[0]


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _error(place: str, text: str) -> DescriptionError:
    return DescriptionError(f"field {place}: {text}" if place else text)
