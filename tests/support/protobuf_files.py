"""Descriptor sets as protoc writes them, and messages of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

IMPORTED: Final = (timestamp_pb2, wrappers_pb2, duration_pb2, struct_pb2, any_pb2)
PROTO: Final = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto"; // and wrappers, duration, struct, any

enum State { NEW = 0; PAID = 1; SENT = 2; }
message Order {
  message Buyer { string name = 1; optional string mail = 2; }
  int64 id = 1;            sint32 pieces = 2;      uint32 small = 3;      uint64 large = 4;
  bool paid = 5;           float weight = 6;       double total = 7;      string note = 8;
  bytes raw = 9;           State state = 10;       repeated string tags = 11;
  repeated int32 numbers = 12;                     map<string, int64> counts = 13;
  map<int32, Buyer> buyers = 14;                   Buyer buyer = 15;
  repeated Buyer others = 16;                      google.protobuf.Timestamp at = 17;
  google.protobuf.StringValue nick = 18;           google.protobuf.Duration wait = 19;
  oneof choice { string text = 20; int64 number = 21; }
  google.protobuf.Struct free = 22;                Order parent = 23;
  repeated State states = 24;                      google.protobuf.Any any = 25;
}
message Parcel { string id = 1; string place = 2; }
"""
"""The file that :func:`shop_file` describes."""

_F: Final = FieldDescriptorProto


def shop_file(*, adds: Callable[[FileDescriptorProto], None] = lambda _: None) -> bytes:
    """Return the descriptor set of ``shop.proto``; *adds* may change the file."""
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(one.DESCRIPTOR.name for one in IMPORTED)
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "PAID", "SENT")):
        state.value.add(name=name, number=number)
    order = file.message_type.add(name="Order")
    buyer = order.nested_type.add(name="Buyer")
    _add(buyer, "name", 1, _F.TYPE_STRING)
    buyer.oneof_decl.add(name="_mail")
    _add(buyer, "mail", 2, _F.TYPE_STRING, oneof_index=0, proto3_optional=True)
    for number, (name, type_) in enumerate(
        [
            ("id", _F.TYPE_INT64),
            ("pieces", _F.TYPE_SINT32),
            ("small", _F.TYPE_UINT32),
            ("large", _F.TYPE_UINT64),
            ("paid", _F.TYPE_BOOL),
            ("weight", _F.TYPE_FLOAT),
            ("total", _F.TYPE_DOUBLE),
            ("note", _F.TYPE_STRING),
            ("raw", _F.TYPE_BYTES),
        ],
        1,
    ):
        _add(order, name, number, type_)
    _add(order, "state", 10, _F.TYPE_ENUM, type_name=".shop.State")
    _add(order, "tags", 11, _F.TYPE_STRING, label=_F.LABEL_REPEATED)
    _add(order, "numbers", 12, _F.TYPE_INT32, label=_F.LABEL_REPEATED)
    _add_map(order, "counts", 13, _F.TYPE_STRING, (_F.TYPE_INT64, None))
    _add_map(order, "buyers", 14, _F.TYPE_INT32, (_F.TYPE_MESSAGE, ".shop.Order.Buyer"))
    of_buyer = {"type_name": ".shop.Order.Buyer"}
    _add(order, "buyer", 15, _F.TYPE_MESSAGE, **of_buyer)
    _add(order, "others", 16, _F.TYPE_MESSAGE, label=_F.LABEL_REPEATED, **of_buyer)
    for name, number, type_name in (
        ("at", 17, "Timestamp"),
        ("nick", 18, "StringValue"),
        ("wait", 19, "Duration"),
        ("free", 22, "Struct"),
        ("any", 25, "Any"),
    ):
        _add(order, name, number, _F.TYPE_MESSAGE, type_name=f".google.protobuf.{type_name}")
    order.oneof_decl.add(name="choice")
    _add(order, "text", 20, _F.TYPE_STRING, oneof_index=0)
    _add(order, "number", 21, _F.TYPE_INT64, oneof_index=0)
    _add(order, "parent", 23, _F.TYPE_MESSAGE, type_name=".shop.Order")
    of_state = {"type_name": ".shop.State"}
    _add(order, "states", 24, _F.TYPE_ENUM, label=_F.LABEL_REPEATED, **of_state)
    parcel = file.message_type.add(name="Parcel")
    _add(parcel, "id", 1, _F.TYPE_STRING)
    _add(parcel, "place", 2, _F.TYPE_STRING)
    adds(file)
    return with_imports(file)


def with_imports(file: FileDescriptorProto) -> bytes:
    """Return a descriptor set of a file and of its imports, as ``--include_imports`` makes it."""
    found = descriptor_pb2.FileDescriptorSet()
    for one in IMPORTED:
        if one.DESCRIPTOR.name in file.dependency:
            one.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.append(file)
    described: bytes = found.SerializeToString()
    return described


def add_field(file: FileDescriptorProto, message: int, name: str, number: int, type_: int) -> None:
    """Add a field to the message of that number in a file."""
    _add(file.message_type[message], name, number, type_)


def message_class(descriptor_set: bytes, name: str) -> type[Message]:
    """Return the class of a type of messages."""
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file:
        pool.Add(file)
    found: type[Message] = GetMessageClass(pool.FindMessageTypeByName(name))
    return found


def _add(message: DescriptorProto, name: str, number: int, type_: int, **more: object) -> None:
    message.field.add(name=name, number=number, type=type_, **{"label": _F.LABEL_OPTIONAL, **more})


def _add_map(
    message: DescriptorProto, name: str, number: int, key: int, value: tuple[int, str | None]
) -> None:
    entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
    entry.options.map_entry = True
    _add(entry, "key", 1, key)
    type_, type_name = value
    _add(entry, "value", 2, type_, **({"type_name": type_name} if type_name else {}))
    _add(
        message,
        name,
        number,
        _F.TYPE_MESSAGE,
        label=_F.LABEL_REPEATED,
        type_name=f".shop.{message.name}.{entry.name}",
    )
