"""The switches of a process under test do what they say, to real files and its clock."""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos import start
from chaos.cluster import Party
from chaos.controls import Controls, Disk
from chaos.nemeses.disks import lose_unflushed
from eruca_chassis.clock import SystemClock

SIZE = 64 * 1024
BASE = 3 * SIZE


@pytest.fixture
def controls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Controls:
    """Return the switches; what they patch is undone afterwards."""
    for name in ("pwrite", "pwritev", "fdatasync"):
        monkeypatch.setattr(os, name, getattr(os, name))
    monkeypatch.setattr(SystemClock, "now_ms", SystemClock.now_ms)
    monkeypatch.setattr(Path, "read_text", Path.read_text)
    found = Controls(tmp_path / "controls")
    start.control_disk(found)
    start.control_clock(found)
    return found


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[int]:
    """Yield the descriptor of a segment that begins at BASE."""
    directory = tmp_path / "commitlog"
    directory.mkdir()
    path = directory / f"{BASE:020d}"
    path.write_bytes(bytes(SIZE))
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def test_two_processes_share_the_switches(tmp_path: Path) -> None:
    ours, theirs = Controls(tmp_path / "controls"), Controls(tmp_path / "controls")
    ours.disk, ours.clock_offset_ms, ours.clock_rate = Disk.SLOW, -7, 0.5

    assert (theirs.disk, theirs.clock_offset_ms, theirs.clock_rate) == (Disk.SLOW, -7, 0.5)
    theirs.heal()
    assert (ours.disk, ours.clock_offset_ms, ours.clock_rate) == (Disk.SOUND, 0, 0.0)


@pytest.mark.parametrize(
    ("disk", "number"), [(Disk.FULL, errno.ENOSPC), (Disk.FAILING_WRITES, errno.EIO)]
)
def test_a_disk_that_fails_writes(
    controls: Controls, segment: int, disk: Disk, number: int
) -> None:
    controls.disk = disk

    with pytest.raises(OSError, match=os.strerror(number)):
        os.pwrite(segment, b"x", 0)
    with pytest.raises(OSError, match=os.strerror(number)):
        os.pwritev(segment, [b"x"], 0)

    controls.disk = Disk.SOUND
    assert os.pwrite(segment, b"x", 0) == 1


def test_a_disk_that_fails_flushes(controls: Controls, segment: int) -> None:
    os.pwrite(segment, b"x", 9)
    controls.disk = Disk.FAILING_FLUSHES

    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        os.fdatasync(segment)

    assert (controls.written_offset, controls.durable_offset) == (BASE + 10, 0)


def test_a_flush_makes_durable_what_was_written(controls: Controls, segment: int) -> None:
    os.pwritev(segment, [b"abc", b"def"], 100)
    os.fdatasync(segment)
    os.pwrite(segment, b"more", 106)

    assert (controls.durable_offset, controls.written_offset) == (BASE + 106, BASE + 110)


def test_zeros_and_other_files_are_no_part_of_the_log(
    controls: Controls, segment: int, tmp_path: Path
) -> None:
    os.pwrite(segment, bytes(500), 0)
    with (tmp_path / "checkpoint").open("wb") as file:
        os.pwrite(file.fileno(), b"checkpoint", 0)
        os.fdatasync(file.fileno())

    assert (controls.durable_offset, controls.written_offset) == (0, 0)


@pytest.mark.parametrize("seed", range(30))
def test_a_power_cut_keeps_what_is_durable_and_nothing_certain_of_the_rest(
    controls: Controls, segment: int, tmp_path: Path, seed: int
) -> None:
    durable, written = 10_000, 60_000
    os.pwrite(segment, b"d" * durable, 0)
    os.fdatasync(segment)
    os.pwrite(segment, b"w" * (written - durable), durable)
    party = Party("broker-a/1", "eruca_broker", 0, tmp_path, {}, controls)

    text = lose_unflushed(party, random.Random(seed))

    left = (tmp_path / "commitlog" / f"{BASE:020d}").read_bytes()
    assert left[:durable] == b"d" * durable
    assert set(left[durable:written]) <= set(b"w\0")
    assert text == f"{left[durable:written].count(0)} of {written - durable} unflushed bytes lost"


def test_a_clock_is_set_wrong_and_drifts(controls: Controls) -> None:
    clock = SystemClock()
    controls.clock_offset_ms = 60_000
    assert clock.now_ms() - time.time() * 1_000 == pytest.approx(60_000, abs=5_000)

    controls.clock_offset_ms, controls.clock_rate = 0, 1_000.0
    controls.drifts_since = time.monotonic() - 1.0
    assert clock.now_ms() - time.time() * 1_000 >= 1_000_000


def test_a_boot_id_is_replaced(controls: Controls) -> None:
    start.replace_boot_id("boot-7")

    assert Path(start.BOOT_ID_FILE).read_text().strip() == "boot-7"
    assert Path("/proc/self/comm").read_text().strip()
