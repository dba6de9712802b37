"""Compiled functions leave the vector registers' upper halves clean, as their callers expect."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from ctypes import c_char_p, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import pytest

from eruca.contract.records import Host, Record, encode_unstamped
from eruca.contract.wire import encode_batch
from eruca_broker.core.batches import batch
from eruca_broker.core.native import library
from eruca_broker.core.records import stored_proof

HOST = Host.parse("127.0.0.1", 10911)
BODY = bytes(1024)
# A call with as many arguments as any of them has; XGETBV tells which registers are in use.
PROBE = """
#include <cpuid.h>
#include <stdint.h>

static uint32_t in_use;

uint32_t can_tell(void)
{
    uint32_t a = 0, b, c, d;
    return __get_cpuid_count(13, 1, &a, &b, &c, &d) && a & 4;
}

uint32_t call(uint32_t (*function)(uint64_t, ...), uint64_t *with)
{
    uint32_t found = function(with[0], with[1], with[2], with[3], with[4], with[5], with[6],
                              with[7], with[8], with[9]), high;
    __asm__ volatile("xgetbv" : "=a"(in_use), "=d"(high) : "c"(1));
    return found;
}

uint32_t are_upper_halves_in_use(void)
{
    return in_use & (1 << 2 | 1 << 6); /* of registers 0 to 15: from bit 128 on, from bit 256 on */
}
"""


class Probe:
    """Calls functions and notes whether one left upper halves in use."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.PyDLL(str(path))
        self.left_in_use: dict[str, bool] = {}

    def can_tell(self) -> bool:
        return bool(self._library.can_tell())

    def call(self, name: str, address: int | None, *arguments: object) -> int:
        given = [0 if each is None else each for each in arguments]
        numbers = [each if isinstance(each, int) else _address(each) for each in given]
        found: int = self._library.call(c_void_p(address), (c_uint64 * 10)(*numbers))
        self.left_in_use[name] = bool(self._library.are_upper_halves_in_use())
        return found


def _address(what: Any) -> int:  # noqa: ANN401 - whatever ctypes casts
    at = ctypes.cast(c_char_p(what) if isinstance(what, bytes) else what, c_void_p).value
    assert at is not None
    return at


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc")
    (tmp_path / "probe.c").write_text(PROBE)
    command = [gcc, "-O2", "-fPIC", "-shared", "-o", "probe.so", "probe.c"]
    if subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode:
        pytest.skip("no x86-64")
    probe = Probe(tmp_path / "probe.so")
    if not probe.can_tell():
        pytest.skip("this processor does not tell which registers are in use")
    return probe


def test_no_function_leaves_upper_halves_in_use_although_the_crc_does(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe.call("crc32", library.CRC32_AT, 0, BODY, len(BODY))
    if not probe.left_in_use.pop("crc32"):
        pytest.skip("ISA-L uses no upper halves on this processor")

    watched = {
        batch: ["prove_records", "stamp_records"],
        stored_proof: ["prove_queued", "prove_stored"],
    }
    for module, names in watched.items():
        for name in names:
            address = ctypes.cast(getattr(library, name), c_void_p).value
            monkeypatch.setattr(
                module, name, lambda *args, n=name, a=address: probe.call(n, a, *args)
            )
    record = encode_unstamped(Record("orders", BODY, properties="TAGS\x01a\x02"))
    sent = batch.check_batch(
        bytearray(encode_batch([record])), topic="orders", queue_id=0, store_host=HOST
    )
    sent.stamp(queue_offset=0, log_offset=0, store_timestamp=1, store_host=HOST, born_host=HOST)
    count = stored_proof.sound_count(
        [(0, sent.records)], sent.size.to_bytes(4), topic=b"orders", queue_id=0, queue_offset=0
    )

    assert count == 1
    assert stored_proof.is_sound(bytes(sent.records))

    assert probe.left_in_use == dict.fromkeys(
        ["prove_records", "stamp_records", "prove_queued", "prove_stored"], False
    )
