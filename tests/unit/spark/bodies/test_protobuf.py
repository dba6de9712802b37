"""Bodies of Protobuf: their values and columns, and bodies that only look like the message."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from eruca_spark.bodies.decoders.columns import ddl_of
from eruca_spark.bodies.decoders.errors import BodyError, DescriptionError
from eruca_spark.bodies.decoders.protobuf import ProtobufMessage, message_names, needed_files
from support.protobuf_files import add_field, message_class, shop_file, with_imports

SHOP = shop_file()
AT = datetime(2026, 11, 28, 8, 30, 0, 123_456, tzinfo=UTC)


def order(**values: object) -> Any:  # noqa: ANN401 - generated
    """Return an order, made by Google's implementation."""
    return message_class(SHOP, "shop.Order")(**values)


def read(body: bytes, descriptor_set: bytes = SHOP, name: str = "shop.Order") -> Mapping[str, Any]:
    return ProtobufMessage(descriptor_set, name).read(body)


def reason(body: bytes, descriptor_set: bytes = SHOP, name: str = "shop.Order") -> str:
    with pytest.raises(BodyError) as caught:
        read(body, descriptor_set, name)
    return str(caught.value)


def test_every_type_is_read_as_it_was_written() -> None:
    message = order(
        id=-(2**63),
        pieces=-5,
        small=2**32 - 1,
        large=2**64 - 1,
        paid=True,
        weight=0.5,
        total=1e300,
        note="Grüße, 你好",
        raw=b"\x00\xff",
        state=2,
        tags=["a", ""],
        numbers=[1, -1],
        counts={"x": 2**40},
        buyer={"name": "Zoë"},
        others=[{"name": "n", "mail": ""}],
        nick={"value": "z"},
        wait={"seconds": 3, "nanos": 5},
        number=7,
        states=[1, 9],
        any={"type_url": "t", "value": b"v"},
    )
    message.buyers[-3].name = "b"
    message.at.FromDatetime(AT)
    message.free["k"] = "v"

    assert read(message.SerializeToString()) == {
        "id": -(2**63),
        "pieces": -5,
        "small": 2**32 - 1,
        "large": Decimal(2**64 - 1),
        "paid": True,
        "weight": 0.5,
        "total": 1e300,
        "note": "Grüße, 你好",
        "raw": b"\x00\xff",
        "state": "SENT",
        "tags": ["a", ""],
        "numbers": [1, -1],
        "counts": [("x", 2**40)],
        "buyers": [(-3, {"name": "b", "mail": None})],
        "buyer": {"name": "Zoë", "mail": None},
        "others": [{"name": "n", "mail": ""}],
        "at": (AT - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1),
        "nick": "z",
        "wait": {"seconds": 3, "nanos": 5},
        "text": None,
        "number": 7,
        "states": ["PAID", "9"],
        "any": {"type_url": "t", "value": b"v"},
    }


def test_a_field_that_is_absent_has_its_default_or_is_null_if_absence_means_something() -> None:
    values = read(order(id=1).SerializeToString())

    assert {name for name, value in values.items() if value is None} == {
        *("buyer", "at", "nick", "wait", "text", "number", "any")
    }
    assert (values["note"], values["state"], values["tags"]) == ("", "NEW", [])


def test_columns_have_the_types_of_spark() -> None:
    columns = ProtobufMessage(SHOP, "shop.Order").columns
    found = {name: ddl_of(one.type) for name, one in columns.items() if one.type is not None}

    buyer = "struct<name:string,mail:string>"
    assert found == {
        "id": "bigint",
        "pieces": "int",
        "small": "bigint",
        "large": "decimal(20,0)",
        "paid": "boolean",
        "weight": "float",
        "total": "double",
        "note": "string",
        "raw": "binary",
        "state": "string",
        "tags": "array<string>",
        "numbers": "array<int>",
        "counts": "map<string,bigint>",
        "buyers": f"map<int,{buyer}>",
        "buyer": buyer,
        "others": f"array<{buyer}>",
        "at": "timestamp",
        "nick": "string",
        "wait": "struct<seconds:bigint,nanos:int>",
        "text": "string",
        "number": "bigint",
        "states": "array<string>",
        "any": "struct<type_url:string,value:binary>",
    }
    assert columns["parent"].why == "shop.Order contains itself"
    assert "contains itself" in columns["free"].why


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"id": 1}', "the body is not a shop.Order"),
        (b"order 3", "the body is not a shop.Order"),
        (b"\x08", "the body is not a shop.Order"),
        (b"\x42\x02\xff\xfe", "the body is not a shop.Order"),  # note: not UTF-8
        # id as a text, as a Parcel has it
        (b"\x0a\x01x", "field id: it has another type, or a value that its enum lacks"),
        (b"\x7a\x02\x08\x01", "field buyer.name: it has another type, or a value that"),
        (b"\xf2\x06\x01x", "the body has no field of shop.Order, only others"),
    ],
)
def test_a_body_of_another_type_is_refused(body: bytes, told: str) -> None:
    assert reason(body).startswith(told)


def test_a_time_out_of_range_is_refused() -> None:
    message = order()
    message.at.seconds = 2**60
    assert reason(message.SerializeToString()) == (
        f"field at: the time {2**60} s 0 ns is out of range"
    )


def test_a_later_version_of_the_message_is_read() -> None:
    later = shop_file(
        adds=lambda file: add_field(file, 0, "discount", 99, FieldDescriptorProto.TYPE_INT32)
    )
    body = message_class(later, "shop.Order")(id=7, discount=5).SerializeToString()

    assert read(body)["id"] == 7
    assert read(body, later)["discount"] == 5
    assert read(order(id=7).SerializeToString(), later)["discount"] == 0


def test_proto2_has_nulls_required_fields_and_closed_enums() -> None:
    file = FileDescriptorProto(name="old.proto", package="old")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="A", number=1)
    message = file.message_type.add(name="Old")
    one = FieldDescriptorProto
    message.field.add(name="id", number=1, type=one.TYPE_INT64, label=one.LABEL_REQUIRED)
    message.field.add(name="note", number=2, type=one.TYPE_STRING, label=one.LABEL_OPTIONAL)
    message.field.add(
        name="kind", number=3, type=one.TYPE_ENUM, label=one.LABEL_OPTIONAL, type_name=".old.Kind"
    )
    described = with_imports(file)

    assert read(b"\x08\x05", described, "old.Old") == {"id": 5, "note": None, "kind": None}
    assert reason(b"\x12\x01n", described, "old.Old") == (
        "required fields of old.Old are missing: id"
    )
    assert reason(b"\x08\x05\x18\x02", described, "old.Old").startswith("field kind: it has")
    assert "UTF-8" in reason(b"\x08\x05\x12\x01\xff", described, "old.Old")


def test_types_that_double_at_each_level_have_no_column_and_are_read_over() -> None:
    levels = 60
    one = FieldDescriptorProto
    file = FileDescriptorProto(name="tree.proto", package="tree", syntax="proto3")
    for level in range(levels):
        message = file.message_type.add(name=f"L{level}")
        message.field.add(name="id", number=1, type=one.TYPE_INT64, label=one.LABEL_OPTIONAL)
        if level < levels - 1:
            for number, name in enumerate(("a", "b"), 2):
                message.field.add(
                    name=name,
                    number=number,
                    type=one.TYPE_MESSAGE,
                    label=one.LABEL_OPTIONAL,
                    type_name=f".tree.L{level + 1}",
                )
    described = with_imports(file)
    body = message_class(described, "tree.L0")(id=7, a={"id": 8}).SerializeToString()

    columns = ProtobufMessage(described, "tree.L0").columns

    assert "it has more than 2000 members" in columns["a"].why
    assert read(body, described, "tree.L0") == {"id": 7}
    assert columns["b"].why == columns["a"].why
    small = ProtobufMessage(described, f"tree.L{levels - 4}").columns["b"].type
    assert small is not None
    assert ddl_of(small).count("id:bigint") == 7


def test_a_descriptor_set_is_named_by_its_messages() -> None:
    assert message_names(SHOP)[:3] == ["shop.Order", "shop.Order.Buyer", "shop.Parcel"]
    assert ProtobufMessage(SHOP, "shop.Parcel").path == (1,)
    assert ProtobufMessage(SHOP, "shop.Order.Buyer").path == (0, 0)
    with pytest.raises(DescriptionError, match=r"no message 'shop\.Ordre'; it has: shop\.Order,"):
        ProtobufMessage(SHOP, "shop.Ordre")


def test_only_the_files_that_a_message_needs_are_kept() -> None:
    assert len(needed_files(SHOP, "google.protobuf.Timestamp")) < 500
    kept = needed_files(SHOP, "shop.Order")
    assert read(order(id=3).SerializeToString(), kept)["id"] == 3


@pytest.mark.parametrize(
    ("descriptor_set", "told"),
    [
        (b"", "it is not a descriptor set; make one with protoc --include_imports"),
        (b'syntax = "proto3";', "it is not a descriptor set"),
        (b"\x0a\x00", "it is not a descriptor set"),
    ],
)
def test_another_file_is_refused_with_the_command_that_makes_the_right_one(
    descriptor_set: bytes, told: str
) -> None:
    with pytest.raises(DescriptionError, match=told):
        ProtobufMessage(descriptor_set, "shop.Order")


def test_a_descriptor_set_without_its_imports_is_refused() -> None:
    file = FileDescriptorProto(name="a.proto", dependency=["google/protobuf/timestamp.proto"])
    file.message_type.add(name="A")
    alone = b"\x0a" + bytes([file.ByteSize()]) + file.SerializeToString()

    with pytest.raises(DescriptionError, match=r"a\.proto imports google/.*--include_imports"):
        ProtobufMessage(alone, "A")


def test_a_descriptor_set_with_an_unknown_type_is_refused() -> None:
    broken = shop_file(
        adds=lambda file: setattr(file.message_type[0].field[-1], "type_name", ".shop.Nothing")
    )
    with pytest.raises(DescriptionError, match="it is not a valid descriptor set"):
        ProtobufMessage(broken, "shop.Order")
