"""Protobuf's messages: readers of bodies, and the types of columns.

A parser of Protobuf accepts much that another type of message has written, because it keeps fields
that it does not know. So two things are checked beside it: a field of the message must not have
another type on the wire, and a body must not consist of other fields only. No bytes at all are the
message with all its defaults. That is so only behind a schema id: :mod:`.decoder` rejects an empty
body.

Requires the package protobuf, on the driver and on executors.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from eruca_spark.bodies.decoders.columns import Column, list_type, map_type, struct_type
from eruca_spark.bodies.decoders.errors import BodyError, DescriptionError

Get = Callable[[Any], Any]

_MAKE: Final = "make one with protoc --include_imports --descriptor_set_out=FILE.desc FILE.proto"
_MICROS: Final = 1_000_000
_SECONDS: Final = (-62_135_596_800, 253_402_300_799)  # of a Timestamp: the years 1 to 9999
_UINT64: Final = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)
_TYPES: Final[Mapping[int, pa.DataType]] = {
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Int32", "UInt32", "Int64", "UInt64", "Float", "Double", "String", "Bytes")
)


def message_maker(name: str) -> Callable[[str], ProtobufMessage]:
    """Return what finds the message *name* in a descriptor set in base64."""
    return lambda text: ProtobufMessage(b64decode(text), name)


class ProtobufMessage:
    """A type of messages.

    Attributes:
        columns: The type of each field's column, or the reason that it has none.
        path: The numbers of the message in its file, from the outermost one on.
    """

    def __init__(self, descriptor_set: bytes, name: str) -> None:
        """Find a type of messages in a descriptor set.

        Raises:
            DescriptionError: The bytes are no complete descriptor set, or have no such type.
        """
        descriptor = _descriptor(descriptor_set, name)
        self._class = GetMessageClass(descriptor)
        self._name = name
        fields = _Fields(descriptor, _Messages(descriptor), is_body=True)
        self.columns: dict[str, Column] = fields.columns
        self.path = _path(descriptor)
        self._values = fields.values

    def read(self, body: bytes) -> Mapping[str, Any]:
        """Return the values of a body by field.

        Raises:
            BodyError: The body is no such message.
        """
        try:
            message = self._class.FromString(body)
        except DecodeError as error:
            raise BodyError(f"the body is not a {self._name}") from error
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            raise BodyError(f"required fields of {self._name} are missing: {missing}")
        return self._values(message)


class _Fields:
    """The fields of a message, as columns or as members of a struct."""

    def __init__(
        self, descriptor: Descriptor, messages: _Messages, *, is_body: bool = False
    ) -> None:
        self.columns: dict[str, Column] = {}
        self._gets: list[tuple[str, Get]] = []
        self._numbers = {field.number: field.name for field in descriptor.fields}
        self._name = descriptor.full_name
        self._is_body = is_body
        for field in descriptor.fields:
            column, get = _field(field, messages)
            self.columns[field.name] = column
            if column.type is not None:
                self._gets.append((field.name, get))

    def values(self, message: Message) -> dict[str, Any]:
        """Return the values of a message, by field."""
        unknown = UnknownFieldSet(message)
        if len(unknown):
            self._check(message, unknown)
        values = {}
        name = ""
        try:
            for name, get in self._gets:
                values[name] = get(message)
        except BodyError as error:
            raise error.within(name) from error
        return values

    def _check(self, message: Message, unknown: Any) -> None:  # noqa: ANN401 - untyped
        for field in unknown:
            name = self._numbers.get(field.field_number)
            if name is not None:
                raise BodyError("it has another type, or a value that its enum lacks", (name,))
        if self._is_body and not message.ListFields():
            raise BodyError(f"the body has no field of {self._name}, only others")


class _Messages:
    """The types of messages below that of the bodies, each compiled once.

    A type that two fields have would otherwise be compiled twice, and those below it four times.
    """

    def __init__(self, body: Descriptor) -> None:
        self._open = {body.full_name}  # those that are being compiled
        self._compiled: dict[str, tuple[Column, Get]] = {}

    def part(self, descriptor: Descriptor) -> tuple[Column, Get]:
        """Return the type of a message's column, and the function that converts it."""
        name = descriptor.full_name
        if name in self._open:
            return Column(why=f"{name} contains itself"), lambda _: None
        if name not in self._compiled:
            self._open.add(name)
            fields = _Fields(descriptor, self)
            self._open.remove(name)
            # Another type can be open at its next use. If it contains that one, both contain
            # themselves, so neither has a column, wherever it is used.
            self._compiled[name] = struct_type(fields.columns), fields.values
        return self._compiled[name]


def message_names(descriptor_set: bytes) -> list[str]:
    """Return the types of messages in a descriptor set, without those of map entries.

    Those of Protobuf itself are last.

    Raises:
        DescriptionError: The bytes are no descriptor set.
    """

    def within(messages: Sequence[Any], prefix: str) -> Iterator[str]:
        for message in messages:
            if not message.options.map_entry:
                yield f"{prefix}{message.name}"
                yield from within(message.nested_type, f"{prefix}{message.name}.")

    names: list[str] = []
    for file in _files(descriptor_set):
        names += within(file.message_type, f"{file.package}." if file.package else "")
    return sorted(names, key=lambda name: name.startswith("google.protobuf."))


def needed_files(descriptor_set: bytes, name: str) -> bytes:
    """Return a descriptor set with only the files that a type of messages needs.

    Raises:
        DescriptionError: The bytes are no complete descriptor set, or have no such type.
    """
    by_name = {file.name: file for file in _files(descriptor_set)}
    needed: set[str] = set()
    wanted = [_descriptor(descriptor_set, name).file.name]
    while wanted:
        file = by_name[wanted.pop()]
        needed.add(file.name)
        wanted += [one for one in file.dependency if one not in needed]
    kept = FileDescriptorSet()
    for file in by_name.values():
        if file.name in needed:
            copy = kept.file.add()
            copy.CopyFrom(file)
            copy.ClearField("source_code_info")
    found: bytes = kept.SerializeToString(deterministic=True)
    return found


def _files(descriptor_set: bytes) -> list[FileDescriptorProto]:
    try:
        files = list(FileDescriptorSet.FromString(descriptor_set).file)
    except DecodeError as error:
        raise DescriptionError(f"it is not a descriptor set ({error}); {_MAKE}") from error
    if not files or not all(file.name for file in files):
        raise DescriptionError(f"it is not a descriptor set; {_MAKE}")
    return files


def _descriptor(descriptor_set: bytes, name: str) -> Descriptor:
    pool = DescriptorPool()
    files = {file.name: file for file in _files(descriptor_set)}
    added: set[str] = set()

    def add(file: FileDescriptorProto, inner: tuple[str, ...]) -> None:
        if file.name in added or file.name in inner:
            return
        for one in file.dependency:
            if one not in files:
                raise DescriptionError(f"{file.name} imports {one}, which it lacks; {_MAKE}")
            add(files[one], (*inner, file.name))
        added.add(file.name)
        pool.Add(file)

    try:
        for file in files.values():
            add(file, ())
    except (TypeError, ValueError) as error:
        raise DescriptionError(f"it is not a valid descriptor set: {error}") from error
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError as error:
        has = ", ".join(message_names(descriptor_set)) or "no message"
        raise DescriptionError(f"it has no message {name!r}; it has: {has:.500}") from error


def _path(descriptor: Descriptor) -> tuple[int, ...]:
    outer = descriptor.containing_type
    if outer is None:
        return ([*descriptor.file.message_types_by_name].index(descriptor.name),)
    return (*_path(outer), [one.name for one in outer.nested_types].index(descriptor.name))


def _field(field: FieldDescriptor, messages: _Messages) -> tuple[Column, Get]:
    """Return the type of a field's column, and the function that gets its value."""
    name = field.name
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, _ = _single(entry.fields_by_name["key"], messages)
        value, convert = _single(entry.fields_by_name["value"], messages)
        assert key.type is not None, "keys of maps are integers, booleans or texts"
        convert_key = _converter(entry.fields_by_name["key"])

        def pairs(message: Message) -> list[tuple[Any, Any]]:
            items = getattr(message, name).items()
            return [(convert_key(one), convert(other)) for one, other in items]

        return map_type(key.type, value), pairs
    column, convert = _single(field, messages)
    if field.is_repeated:
        return list_type(column), lambda message: [convert(one) for one in getattr(message, name)]
    if field.has_presence:
        return (
            column,
            lambda message: convert(getattr(message, name)) if message.HasField(name) else None,
        )
    return column, lambda message: convert(getattr(message, name))


def _single(field: FieldDescriptor, messages: _Messages) -> tuple[Column, Get]:
    """Return the type of one value of a field, and the function that converts it."""
    message = field.message_type
    if message is None:
        return Column(_scalar_type(field)), _converter(field)
    if message.full_name == "google.protobuf.Timestamp":
        return Column(pa.timestamp("us", tz="UTC")), _micros
    if message.full_name in _WRAPPERS:
        value = message.fields_by_name["value"]
        convert = _converter(value)
        return Column(_scalar_type(value)), lambda wrapper: convert(wrapper.value)
    return messages.part(message)


def _scalar_type(field: FieldDescriptor) -> pa.DataType:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string()
    return _TYPES[field.cpp_type]


def _converter(field: FieldDescriptor) -> Get:
    if field.enum_type is not None:
        return _enum_names(field.enum_type)
    if field.type == FieldDescriptor.TYPE_STRING:
        return _text
    return Decimal if field.type in _UINT64 else _as_it_is


def _text(value: str | bytes) -> str:
    if isinstance(value, bytes):  # proto2 does not demand UTF-8
        raise BodyError("the text is not UTF-8")
    return value


def _as_it_is(value: object) -> object:
    return value


def _enum_names(enum: EnumDescriptor) -> Get:
    names = {number: value.name for number, value in enum.values_by_number.items()}

    def name_of(number: int) -> str:
        # as in Protobuf's JSON: later versions of an open enum may have more values
        return names.get(number) or str(number)

    return name_of


def _micros(timestamp: Any) -> int:  # noqa: ANN401 - generated
    seconds, nanos = timestamp.seconds, timestamp.nanos
    if not (_SECONDS[0] <= seconds <= _SECONDS[1] and 0 <= nanos < 1_000_000_000):
        raise BodyError(f"the time {seconds} s {nanos} ns is out of range")
    return int(seconds * _MICROS + nanos // 1000)
