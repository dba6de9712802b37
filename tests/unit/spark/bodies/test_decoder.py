"""Bodies become columns of Arrow, with the header of a schema registry or without one."""

from __future__ import annotations

import io
from base64 import b64encode
from typing import Any

import fastavro
import pyarrow as pa

from eruca_spark.bodies.decoders.decoder import BodyDecoder, Description
from support.protobuf_files import message_class, shop_file

V1: dict[str, Any] = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}
V2: dict[str, Any] = {
    **V1,
    "fields": [{"name": "note", "type": "string"}, {"name": "id", "type": "long"}],
}
COLUMNS = {"id": pa.int64(), "note": pa.string()}
SHOP = shop_file()


def avro(schema: dict[str, Any], **values: object) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, values)
    return body.getvalue()


def parcel(**values: object) -> bytes:
    message = message_class(SHOP, "shop.Parcel")(**values)
    body: bytes = message.SerializeToString()
    return body


def decoded(
    description: Description, *bodies: bytes | None, columns: dict[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    decoder = BodyDecoder(description, columns or COLUMNS, "reason")
    rows = decoder.decoded(pa.array(bodies, pa.binary())).to_pylist()
    return [tuple(row.values()) for row in rows]


def with_id(number: int, body: bytes) -> bytes:
    return b"\x00" + number.to_bytes(4, "big") + body


def test_a_body_without_a_header_is_one_record_of_the_schema() -> None:
    rows = decoded(Description("avro", {"": V1}), avro(V1, id=7), None, b"", b"\x02\x02")

    assert rows == [
        (7, None, None),
        (None, None, None),
        (None, None, "the body is empty"),
        (None, None, "bytes behind the record: 1"),
    ]


def test_a_header_where_none_is_expected_is_named_with_the_option_that_reads_it() -> None:
    [(_, _, reason)] = decoded(Description("avro", {"": V1}), with_id(17, avro(V1, id=7)))

    assert reason == (
        "bytes behind the record: 5 (or the body begins with schema id 17: use --body-schema"
        " 17=FILE)"
    )


def test_each_body_is_read_by_the_schema_of_its_id() -> None:
    rows = decoded(
        Description("avro", {"17": V1, "18": V2}),
        with_id(17, avro(V1, id=7)),
        with_id(18, avro(V2, id=8, note="n")),
        with_id(19, avro(V1, id=7)),
        avro(V1, id=7),
        b"\x00\x00\x00\x00",
        with_id(17, b""),
    )

    assert rows == [
        (7, None, None),
        (8, "n", None),
        (None, None, "expected a schema id of 17, 18, found 19"),
        (None, None, "the body does not begin with a schema id: a zero and 4 bytes"),
        (None, None, "the body does not begin with a schema id: a zero and 4 bytes"),
        (None, None, "field id: the body ends in it"),
    ]


def test_protobufs_header_also_names_the_message() -> None:
    body = parcel(id="p", place="here")
    rows = decoded(
        Description("protobuf", {"3": b64encode(SHOP).decode()}, "shop.Parcel"),
        with_id(3, b"\x02\x02" + body),
        with_id(3, b"\x00" + body),
        with_id(3, b"\x04\x00\x00" + body),
        with_id(3, b"\x04"),
        with_id(3, b""),
        columns={"id": pa.string(), "place": pa.string()},
    )

    assert rows == [
        ("p", "here", None),
        (None, None, "the header names another message of its file: [0]"),
        (None, None, "the header names another message of its file: [0, 0]"),
        (None, None, "the body ends in its header"),
        (None, None, "the body ends in its header"),
    ]


def test_an_empty_body_is_rejected_and_an_empty_message_behind_a_header_has_its_defaults() -> None:
    shop, columns = b64encode(SHOP).decode(), {"id": pa.string(), "place": pa.string()}
    plain = Description("protobuf", {"": shop}, "shop.Parcel")
    with_ids = Description("protobuf", {"3": shop}, "shop.Parcel")

    assert decoded(plain, b"", columns=columns) == [(None, None, "the body is empty")]
    assert decoded(with_ids, with_id(3, b"\x02\x02"), columns=columns) == [("", "", None)]


def test_a_field_has_values_only_from_schemas_in_which_it_has_a_column() -> None:
    def with_parent(*types: object) -> dict[str, Any]:
        parent = {"name": "parent", "type": [*types], "default": None}
        return {**V1, "fields": [*V1["fields"], parent]}

    recursive, number = with_parent("null", V1["name"]), with_parent("null", "long")
    rows = decoded(
        Description("avro", {"17": recursive, "18": number}),
        with_id(17, avro(recursive, id=7, parent={"id": 1, "parent": None})),
        with_id(18, avro(number, id=8, parent=2)),
        columns={"id": pa.int64(), "parent": pa.int64()},
    )

    assert rows == [(7, None, None), (8, 2, None)]


def test_a_batch_without_rows_has_the_columns() -> None:
    assert decoded(Description("avro", {"": V1})) == []
