"""A service keeps its files to itself, in a place that survives a power cut."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.forked import forked, forked_broker
from support.processes import START_SECONDS, clean_environment
from support.stores import batch, small_settings
from support.waiting import wait_until

SETTINGS = {
    "ERUCA_BROKER_PORT": "0",
    "ERUCA_BROKER_NAMESRV_URLS": "",
    "ERUCA_BROKER_SEGMENT_BYTES": str(64 * 1024),
    "ERUCA_BROKER_QUEUE_FILE_ENTRIES": "20",
    "ERUCA_BROKER_INDEX_SLOTS": "100",
    "ERUCA_BROKER_INDEX_ENTRIES": "40",
}


def modes(directory: Path) -> dict[Path, int]:
    """Return the mode of all that is in *directory*, and its own."""
    return {path: stat.S_IMODE(path.stat().st_mode) for path in [directory, *_below(directory)]}


def _below(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*") if not path.is_symlink())


def use(url: str) -> None:
    """Have the broker make files of every kind."""
    with httpx.Client(base_url=f"{url}/v1") as client:
        for number in range(60):
            message: dict[str, object] = {"body": {"text": "x" * 3_000}, "keys": [f"k{number}"]}
            if number % 3 == 0:
                message["delay_seconds"] = 3_600
            assert client.post("/topics/orders/messages", json=message).status_code == 201
        assert client.put("/groups/g", json={}).is_success
        assert client.delete("/topics/orders").status_code == 204


@pytest.mark.parametrize(("group_access", "widest"), [("false", 0o700), ("true", 0o750)])
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_broker_s_files_are_its_own(
    tmp_path: Path, group_access: str, widest: int, end: signal.Signals
) -> None:
    directory = tmp_path / "above" / "store"
    settings = {
        **SETTINGS,
        "ERUCA_BROKER_STORE_DIR": str(directory),
        "ERUCA_BROKER_GROUP_ACCESS": group_access,
    }
    for _ in range(2):
        with forked_broker(settings) as process:
            use(process.url)
            wait_until(lambda: (directory / "config" / "topics.json").exists())
            process.stop(end)

    found = modes(directory)
    assert {path.name for path in found} >= {"commitlog", "lock", "checkpoint", "topics.json"}
    for path, mode in found.items():
        assert mode == (widest if path.is_dir() else widest & 0o660), path


@pytest.mark.parametrize("mask", [0, 0o777 & ~0o700])
def test_the_mask_it_was_started_with_does_not_matter(tmp_path: Path, mask: int) -> None:
    directory = tmp_path / "store"
    environment = {
        **clean_environment(),
        **SETTINGS,
        "ERUCA_BROKER_STORE_DIR": str(directory),
        "ERUCA_BROKER_GROUP_ACCESS": "true",
    }
    command = [sys.executable, "-m", "eruca_broker"]
    with subprocess.Popen(command, env=environment, umask=mask, stderr=subprocess.DEVNULL) as run:
        try:
            wait_until(
                lambda: (directory / "config" / "topics.json").exists(),
                within_seconds=START_SECONDS,
            )
        finally:
            run.terminate()

    for path, mode in modes(directory).items():
        assert mode == (0o750 if path.is_dir() else 0o640), path


def test_a_store_that_was_open_to_all_is_closed_at_the_next_start(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    with forked_broker({**SETTINGS, "ERUCA_BROKER_STORE_DIR": str(directory)}) as process:
        assert process.stop() == 0

    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_name_server_s_key_value_file_is_its_own(tmp_path: Path) -> None:
    path = tmp_path / "above" / "kv.json"
    settings = {"ERUCA_NAMESRV_PORT": "0", "ERUCA_NAMESRV_KV_FILE": str(path)}
    with forked("eruca_namesrv", settings) as process:
        put = httpx.put(f"{process.url}/v1/kv/a/b", json={"value": "secret"})
        assert put.is_success, put.text

    for each in (path, path.with_name("kv.json.lock")):
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.anyio
async def test_each_directory_that_a_store_makes_is_durable_up_to_the_first_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[Path] = set()
    fsync = os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", note)
    directory = tmp_path / "a" / "b" / "store"
    store = await MessageStore.open(directory, small_settings(), ManualClock())
    await store.append(batch("orders", 0, [b"x"], keys="k"))
    await store.upkeep.checkpoint()
    made = {path for path in (tmp_path / "a").rglob("*") if path.is_dir()} | {tmp_path / "a"}

    await store.close()
    assert {path.parent for path in made} <= synced
