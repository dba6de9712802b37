"""Accelerators and what stands in for them give the same."""

from __future__ import annotations

import subprocess
import sys
import zlib

from hypothesis import given
from hypothesis import strategies as st

from eruca.core.messages.accelerators import COMPRESSION_ERRORS, compress, crc32, decompressobj


@given(data=st.binary())
def test_checksums_are_the_standard_librarys(data: bytes) -> None:
    assert crc32(data) == zlib.crc32(data)


@given(data=st.binary(min_size=1))
def test_each_unpacks_what_the_other_packed(data: bytes) -> None:
    assert zlib.decompress(compress(data, 5)) == data
    assert decompressobj().decompress(zlib.compress(data)) == data


def test_what_does_not_unpack_is_one_of_the_errors() -> None:
    try:
        decompressobj().decompress(b"nonsense")
    except COMPRESSION_ERRORS:
        return
    raise AssertionError("nonsense was unpacked")


WITHOUT = """
import sys
for name in ("numpy", "zlib_ng", "uvloop"):
    sys.modules[name] = None
from eruca.core.messages.accelerators import crc32, loading_numpy
from eruca.core.messages.message import Message
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.record_batch import decode_messages, encode_messages
from eruca.sync.portal import Portal
messages = [Message("orders", b"x" * 5_000)] * 100
batch = encode_messages(
    messages, ["1"] * 100, queue_id=0, born_timestamp=0, compression_threshold_bytes=4_096
)
records = memoryview(batch.body)[16 + 400 :]
pulled = decode_messages(MessageQueue("orders", "a", 0), records, batch.sizes)
assert all(message.body == b"x" * 5_000 for message in pulled)
portal = Portal()
assert portal.run(lambda: 7) == 7
async def nothing(): ...
portal.finish(nothing)
print(crc32.__module__, loading_numpy().result())
"""


def test_everything_works_without_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("zlib None\n", "")


IMPORTER = """
import sys
from importlib.abc import MetaPathFinder
from threading import current_thread
class Importers(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            print(current_thread().name)
sys.meta_path.insert(0, Importers())
from eruca.core.messages.accelerators import loading_numpy, optional_numpy
assert "numpy" not in sys.modules
optional_numpy()
assert loading_numpy().result() is optional_numpy() is sys.modules["numpy"]
"""


def test_numpy_is_imported_by_a_thread_and_used_from_then_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTER], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("eruca-numpy\n", "")
