"""``eruca-broker --check`` says what a start would do with a store, and changes nothing in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eruca_broker.inspection import findings
from eruca_broker.settings import BrokerSettings
from eruca_chassis.files.file_lock import FileLock
from eruca_chassis.running.checking import Finding
from support.message_stores import ORDERS, opened, send

pytestmark = pytest.mark.anyio


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    """Return the directory of a store that was closed in order."""
    store = await opened(tmp_path / "store")
    await store.change(ORDERS)
    await send(store, b"one", b"two")
    await store.close()
    return tmp_path / "store"


def contents(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return every file's length, time of change and content."""
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns, path.read_bytes()[:4096])
        for path in [directory, *directory.rglob("*")]
        if path.is_file()
    }


def checked(directory: Path, **settings: object) -> list[Finding]:
    """Return the findings about the store itself; the check has changed no file."""
    before = contents(directory.parent)
    made = BrokerSettings.model_construct(
        **{**BrokerSettings().model_dump(), "store_dir": directory, **settings}
    )
    found = [finding for finding in findings(made) if finding.subject != "disk"]
    assert contents(directory.parent) == before
    return found


async def test_a_missing_store_would_be_made(tmp_path: Path) -> None:
    [found] = checked(tmp_path / "deep" / "store")

    assert found == Finding(
        "ok", "store", f"a start would make {tmp_path}/deep/store, which does not exist yet"
    )


async def test_an_empty_directory_would_get_a_log(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()

    [found] = checked(tmp_path / "store")

    assert found.kind == "ok"
    assert "a start would begin a new log" in found.text


async def test_a_file_in_the_place_of_the_store_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")

    [found] = checked(tmp_path / "store")

    assert found.kind == "fault"
    assert "is not a directory; set ERUCA_BROKER_STORE_DIR to" in found.text


async def test_a_store_says_how_it_was_closed(directory: Path) -> None:
    [orderly] = checked(directory)
    assert orderly.kind == "ok"
    assert "has a log in 1 file, from log offset 0 to " in orderly.text
    assert orderly.text.endswith("it was closed in order")

    (directory / "abort").write_text("")
    [killed] = checked(directory)
    assert killed.kind == "ok"
    assert "a start would verify the records from log offset " in killed.text


async def test_a_log_that_lacks_a_file_is_a_fault(directory: Path) -> None:
    [segment] = (path for path in (directory / "commitlog").iterdir() if int(path.name) == 0)
    (directory / "commitlog" / f"{10 * segment.stat().st_size:020d}").write_bytes(b"later")

    [found] = checked(directory)

    assert found.kind == "fault"
    assert "does not follow the segment before it" in found.text
    assert found.text.endswith("restore it from a backup")


async def test_a_store_of_another_replica_is_a_fault(directory: Path) -> None:
    config = directory / "config"
    config.mkdir(exist_ok=True)
    (config / "replica.json").write_text("{}")

    [found] = checked(directory)

    assert found.kind == "fault"
    assert "set ERUCA_BROKER_CONTROLLER_URLS" in found.text


async def test_a_store_in_use_is_a_note_that_names_the_process(directory: Path) -> None:
    lock = FileLock.acquire(directory / "lock")

    [found] = checked(directory)

    assert found.kind == "note"
    assert f"is in use by process {os.getpid()}" in found.text
    assert FileLock.holder_of(directory / "lock") == os.getpid()
    lock.release()
    assert FileLock.holder_of(directory / "lock") is None
    assert FileLock.holder_of(directory / "missing") is None


async def test_a_disk_without_room_is_a_note(directory: Path) -> None:
    settings = BrokerSettings().model_copy(
        update={"store_dir": directory, "disk_refuse_ratio": 1e-9}
    )

    disk, store = findings(settings)

    assert (disk.kind, disk.subject, store.kind) == ("note", "disk", "ok")
    assert "the broker would refuse writes" in disk.text
