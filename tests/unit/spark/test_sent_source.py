"""The data source and the decoders of bodies as they are sent to executors: by value."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pytest

from support.protobuf_files import message_class, shop_file

SEND = """
import sys
import pyspark_eruca
from eruca_spark.session import SENT
from pyspark import cloudpickle

for package in SENT:
    cloudpickle.register_pickle_by_value(package)
sys.stdout.buffer.write(cloudpickle.dumps(pyspark_eruca.DefaultSource))
"""
RECEIVE = """
import pickle
import sys

for name in ("pyspark_eruca", "eruca"):  # as on a machine that lacks them
    sys.modules[name] = None
print(pickle.load(sys.stdin.buffer).name())
"""


def test_a_machine_without_the_source_can_load_it(tmp_path: Path) -> None:
    """A function behind a decorator in C would be sent by its name alone."""
    sent = subprocess.run(
        [sys.executable, "-c", SEND], cwd=tmp_path, capture_output=True, check=True
    ).stdout

    loaded = subprocess.run(
        [sys.executable, "-c", RECEIVE], cwd=tmp_path, input=sent, capture_output=True, check=False
    )

    assert (loaded.stdout, loaded.stderr) == (b"eruca\n", b"")


SEND_DECODER = """
import json
import sys
import pyarrow as pa
from eruca_spark.bodies.decoders.decoder import BodyDecoder, Description
from eruca_spark.session import SENT
from pyspark import cloudpickle

for package in SENT:
    cloudpickle.register_pickle_by_value(package)
columns = {"id": pa.string(), "place": pa.string()}
decoder = BodyDecoder(Description(**json.loads(sys.argv[1])), columns, "reason")
sys.stdout.buffer.write(cloudpickle.dumps(decoder))
"""
RECEIVE_DECODER = """
import pickle
import sys
import pyarrow as pa

for name in ("pyspark_eruca", "eruca", "eruca_spark"):
    sys.modules[name] = None
decoder = pickle.load(sys.stdin.buffer)
bodies = pa.array([bytes.fromhex(sys.argv[1]), b"\\xff"], pa.binary())
first, second = decoder.decoded(bodies).to_pylist()
print(first["id"], first["place"], first["reason"], second["reason"] is not None)
"""
SHOP = shop_file()
AVRO = {
    "type": "record",
    "name": "Parcel",
    "fields": [{"name": "id", "type": "string"}, {"name": "place", "type": ["null", "string"]}],
}


@pytest.mark.parametrize(
    ("description", "body"),
    [
        ({"format": "avro", "schemas": {"": AVRO}}, b"\x02p\x02\x08here"),
        (
            {
                "format": "protobuf",
                "schemas": {"": b64encode(SHOP).decode()},
                "message": "shop.Parcel",
            },
            message_class(SHOP, "shop.Parcel")(id="p", place="here").SerializeToString(),
        ),
    ],
    ids=["Avro", "Protobuf"],
)
def test_a_machine_without_the_decoders_decodes(
    tmp_path: Path, description: dict[str, object], body: bytes
) -> None:
    sent = subprocess.run(
        [sys.executable, "-c", SEND_DECODER, json.dumps(description)],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    ).stdout

    decoded = subprocess.run(
        [sys.executable, "-c", RECEIVE_DECODER, body.hex()],
        cwd=tmp_path,
        input=sent,
        capture_output=True,
        check=False,
    )

    assert (decoded.stdout, decoded.stderr) == (b"p here None True\n", b"")
