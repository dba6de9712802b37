"""The option ``--body-schema``: every wrong file is named, with what to give instead."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from eruca.exporting.errors import OptionError
from eruca_spark.bodies.given import given_bodies
from eruca_spark.bodies.schema import BodySchema
from support.protobuf_files import shop_file

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
LATER: dict[str, Any] = {
    **AVRO,
    "fields": [*AVRO["fields"], {"name": "discount", "type": "int"}],
}
OTHER: dict[str, Any] = {**AVRO, "fields": [{"name": "id", "type": "string"}]}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write files of all kinds into the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, schema in {"order.avsc": AVRO, "later.avsc": LATER, "other.avsc": OTHER}.items():
        (tmp_path / name).write_text(json.dumps(schema))
    (tmp_path / "avro.json").write_text(json.dumps(AVRO))
    (tmp_path / "bad.avsc").write_text("{")
    (tmp_path / "deep.avsc").write_text("[" * 100_000)
    (tmp_path / "text.avsc").write_text('"string"')
    (tmp_path / "latin.avsc").write_bytes(b'"\xe9"')
    (tmp_path / "null.avsc").write_text(
        json.dumps({**AVRO, "fields": [{"name": "no", "type": "null"}]})
    )
    (tmp_path / "order.json").write_text('{"id": "bigint"}')
    (tmp_path / "shop.desc").write_bytes(shop_file())
    (tmp_path / "shop.proto").write_text('syntax = "proto3";')
    return tmp_path


def described(texts: list[str], message: str | None = None) -> BodySchema:
    found = given_bodies(texts, message)
    assert isinstance(found, BodySchema)
    return found


@pytest.mark.usefixtures("files")
def test_the_ending_and_the_message_tell_the_format() -> None:
    avro = described(["order.avsc"])
    protobuf = described(["shop.desc"], "shop.Parcel")

    assert (avro.format_name, avro.fields) == ("Avro", {"id": "bigint", "note": "string"})
    assert (protobuf.format_name, protobuf.fields) == (
        "Protobuf",
        {"id": "string", "place": "string"},
    )
    assert described(["order.json"]).format_name == "JSON"
    assert given_bodies(["infer"], None) == "infer"
    assert given_bodies(None, None) is None


@pytest.mark.usefixtures("files")
def test_ids_give_several_schemas_and_the_fields_of_all() -> None:
    avro = described(["17=order.avsc", "018=later.avsc"])

    assert avro.fields == {"id": "bigint", "note": "string", "discount": "int"}
    assert avro.description is not None
    assert avro.description.schemas == {"17": AVRO, "18": LATER}
    assert avro.description.has_header


@pytest.mark.usefixtures("files")
def test_fields_without_a_column_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = described(["shop.desc"], "shop.Order")

    assert "parent" not in found.fields
    assert (
        "no column for field parent of shop.desc: shop.Order contains itself"
        in capsys.readouterr().err
    )


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("texts", "message", "told"),
    [
        ([], "shop.Order", "body-message: it names a message in the file of --body-schema"),
        (["infer", "order.json"], None, "infer is for JSON bodies, and stands alone"),
        (["infer"], "shop.Order", "infer is for JSON bodies, and stands alone"),
        (["missing.avsc"], None, "missing.avsc cannot be read"),
        (["."], "shop.Order", "cannot be read"),
        (["latin.avsc"], None, "latin.avsc cannot be read"),
        (["bad.avsc"], None, "bad.avsc is not JSON"),
        (["deep.avsc"], None, "deep.avsc is not JSON"),
        (["text.avsc"], None, "text.avsc: expected the schema of a record"),
        (["null.avsc"], None, "no field of null.avsc can be a column"),
        (["avro.json"], None, "avro.json is a schema of Avro; name it FILE.avsc"),
        (["order.avsc"], "shop.Order", "it is for Protobuf, but order.avsc is Avro's"),
        (["shop.proto"], "shop.Order", "compile it, with protoc --include_imports"),
        (["shop.proto"], None, "compile it, with protoc --include_imports"),
        (["a.avdl"], None, "convert it to FILE.avsc"),
        (["rows.avro"], None, "write its schema to FILE.avsc"),
        (
            ["shop.desc"],
            None,
            "name the message of shop.desc with --body-message; it has: shop.Order, ",
        ),
        (["shop.desc"], "Order", "body-message: shop.desc: it has no message 'Order'; it has: "),
        (["order.json"], "shop.Order", "order.json: it is not a descriptor set"),
        (["17=order.json"], None, "expected files of one kind"),
        (["17=order.avsc", "18=order.json"], None, "expected files of one kind"),
        (["17=order.avsc", "17=later.avsc"], None, "the id 17 is given twice"),
        (["order.avsc", "later.avsc"], None, "expected ID=FILE for each of several files"),
        (["17=order.avsc", "later.avsc"], None, "expected ID=FILE for each of several files"),
        (["4294967296=order.avsc"], None, "expected an id of 0 to 2147483647, found 4294967296"),
        (
            ["17=order.avsc", "18=other.avsc"],
            None,
            "field id is bigint in order.avsc, but string in other.avsc",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_the_fix(
    texts: list[str], message: str | None, told: str
) -> None:
    with pytest.raises(OptionError) as caught:
        given_bodies(texts, message)

    assert told in str(caught.value)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("message", ["shop.Order", None])
def test_protobuf_bodies_without_the_package_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch, message: str | None
) -> None:
    monkeypatch.delitem(sys.modules, "eruca_spark.bodies.decoders.protobuf", raising=False)
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor", None)

    with pytest.raises(OptionError, match=r"install eruca-spark\[protobuf\]"):
        given_bodies(["shop.desc"], message)
    assert described(["order.avsc"]).format_name == "Avro"
