"""A store restored from a backup equals the one that was backed up; cut short, it equals its cut.

The log holds records of every kind: messages, delayed ones, leases, transactions, deleted topics.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from random import Random

import anyio
import pytest

from eruca.cli.backups.copying import back_up
from eruca.cli.backups.log_source import Extent, Stretch
from eruca.cli.backups.manifests import Manifest
from eruca.cli.backups.restoring import restore
from eruca.contract.errors import ConflictError, ValidationError
from eruca.objects.folders import FolderRepository
from eruca_broker.opening import UNFINISHED_RESTORE, open_store
from eruca_broker.settings import BrokerSettings
from eruca_broker.store.files.checkpoint import read_checkpoint
from eruca_broker.store.log.commit_log import LostRecordsError
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.start import StartError
from support.lived_stores import CLOCK, assert_same, broker_directory, settings
from support.log_model import read_log
from support.stores import STORE_HOST, scratch_directory, without_log_lines

pytestmark = pytest.mark.anyio

SEEDS = range(3)


class StoreLog:
    """The log of an open store, as a backup reads a broker's."""

    broker_name = "broker-a"

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    async def extent(self) -> Extent:
        store = self._store
        log_id = store.state.log_id
        return Extent(
            "c", "1.0", log_id, store.log_min_offset, store.visible_offset, store.segment_bytes
        )

    async def record(self, log_offset: int) -> bytes | None:
        return bytes(self._store.log.raw(log_offset))

    async def read(self, log_offset: int, epoch: int) -> Stretch:
        read = self._store.log.read(log_offset, 10_000)
        assert not read.damaged
        return Stretch(bytes(read.records), read.next_offset, 0)


async def _backed_up(store: Path, repository: Path) -> Manifest:
    opened = await MessageStore.open(store, settings(is_replica=False), CLOCK)
    try:
        made = await back_up(FolderRepository(repository), StoreLog(opened), piece_size=20_000)
    finally:
        await opened.close()
    return made.manifest


@cache
def lived(seed: int) -> tuple[Path, Path, Manifest]:
    """Return a store, and a repository with a backup of it."""
    directory = scratch_directory()
    with without_log_lines():
        store = broker_directory(directory / "store", seed)
        manifest = anyio.run(_backed_up, store, directory / "backups")
    return store, directory / "backups", manifest


@pytest.fixture(scope="module", autouse=True)
def _stores() -> None:
    """Make the stores before any test's event loop runs: they have loops of their own."""
    for seed in SEEDS:
        lived(seed)


async def restored(
    seed: int, directory: Path, until: int | datetime | None = None
) -> tuple[Path, Manifest]:
    _, repository, manifest = lived(seed)
    await restore(
        FolderRepository(repository), manifest, directory, until=until, told=lambda _: None
    )
    return directory, manifest


async def assert_equal(directory: Path, source: Path, cut_to: int | None = None) -> None:
    """Open both stores, the source's copy cut, and compare all that they have and answer."""
    copied = source.with_name(f"copy-{directory.name}")
    shutil.copytree(source, copied)
    # As replicas, so that no start appends anything of its own.
    its_settings = settings(is_replica=True)
    one = await MessageStore.open(directory, its_settings, CLOCK)
    try:
        other = await MessageStore.open(copied, replace(its_settings, cut_to=cut_to), CLOCK)
        try:
            assert_same(one, other)
        finally:
            await other.close()
    finally:
        await one.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_restored_store_equals_the_one_that_was_backed_up(
    tmp_path: Path, seed: int
) -> None:
    directory, _ = await restored(seed, tmp_path / "restored")

    await assert_equal(directory, lived(seed)[0])


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_store_restored_up_to_an_offset_equals_one_that_was_cut_there(
    tmp_path: Path, seed: int
) -> None:
    source = lived(seed)[0]
    manifest = lived(seed)[2]
    offsets = [offset for _, offset in places(source) if manifest.min_offset < offset]
    for number, until in enumerate(Random(seed).sample(offsets, 4)):
        directory, _ = await restored(seed, tmp_path / str(number), until)
        opened = await MessageStore.open(directory, settings(is_replica=True), CLOCK)
        end = opened.visible_offset  # without a group of records that --until has divided
        await opened.close()

        assert end <= until
        await assert_equal(directory, source, end)


def places(store: Path) -> list[tuple[int, int]]:
    """Return the store time and the log offset of each record of a log."""
    return [(record.store_timestamp, record.log_offset) for record in read_log(store)]


async def test_a_store_restored_up_to_a_time_has_nothing_later(tmp_path: Path) -> None:
    times = sorted({stored for stored, _ in places(lived(0)[0])})
    until_ms = times[len(times) // 2]

    directory, _ = await restored(
        0, tmp_path / "restored", datetime.fromtimestamp(until_ms / 1000, UTC)
    )

    found = [stored for stored, _ in places(directory)]
    wanted = [stored for stored, _ in places(lived(0)[0]) if stored <= until_ms]
    assert found == wanted


@pytest.mark.parametrize("until", [0, 10**12, datetime(1970, 1, 2, tzinfo=UTC)])
async def test_a_store_without_a_record_is_not_restored(
    tmp_path: Path, until: int | datetime
) -> None:
    with pytest.raises(ValidationError):
        await restored(0, tmp_path / "restored", until)

    assert not (tmp_path / "restored" / "commitlog").exists()


async def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()

    with pytest.raises(ConflictError, match="not empty: it has commitlog"):
        await restored(0, tmp_path)


async def test_a_killed_restore_is_begun_again(tmp_path: Path) -> None:
    """No broker starts meanwhile: it would begin an empty log."""
    (tmp_path / UNFINISHED_RESTORE).mkdir()
    (tmp_path / UNFINISHED_RESTORE / f"{0:020d}").write_bytes(b"half")
    (tmp_path / "lock").touch()

    with pytest.raises(StartError, match="a restore has not finished"):
        await open_store(BrokerSettings(store_dir=tmp_path), STORE_HOST, CLOCK)
    directory, _ = await restored(0, tmp_path)

    assert not (tmp_path / UNFINISHED_RESTORE).exists()
    await assert_equal(directory, lived(0)[0])


async def test_a_damaged_piece_is_never_restored(tmp_path: Path) -> None:
    _, repository, manifest = lived(1)
    shutil.copytree(repository, tmp_path / "backups")
    piece = manifest.pieces[2]
    path = tmp_path / "backups" / "log" / manifest.log_id / piece.name
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)

    with pytest.raises(ConflictError, match="do not match their SHA-256"):
        await restore(
            FolderRepository(tmp_path / "backups"),
            manifest,
            tmp_path / "restored",
            until=None,
            told=lambda _: None,
        )

    assert [path.name for path in (tmp_path / "restored").iterdir()] == ["lock"]


async def test_a_restored_log_that_is_damaged_since_is_refused(tmp_path: Path) -> None:
    """Its end is durable, by the checkpoint: so the damage is no torn end."""
    directory, manifest = await restored(0, tmp_path / "restored")
    checkpoint = read_checkpoint(directory)
    assert checkpoint is not None
    assert checkpoint.flushed_offset == manifest.end_offset
    segment = max((directory / "commitlog").iterdir())
    with segment.open("r+b") as file:
        file.seek(manifest.end_offset - int(segment.name) - 10)
        file.write(b"\xff")

    with pytest.raises(LostRecordsError):
        await MessageStore.open(directory, settings(is_replica=False), CLOCK)
