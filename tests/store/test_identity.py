"""A store of a broker group knows who it is, and when it is somebody else (rules 1 and 8)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from eruca.contract.errors import StoreFailedError
from eruca_broker.core.replication.identity import Identity
from eruca_broker.store import identity as identity_module
from eruca_broker.store.identity import WrongReplicaError, read_mark
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode, StoreSettings
from support.message_stores import BOTH_MODES, ORDERS, Flushes, bodies, opened, send
from support.stores import abandon, batch, small_settings, without_log_lines

pytestmark = pytest.mark.anyio
SYNC, ASYNC = FlushMode.SYNC, FlushMode.ASYNC


@pytest.fixture(autouse=True)
def _without_log_lines() -> Iterator[None]:
    with without_log_lines():
        yield


@pytest.fixture
def reboot(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """Return a function that gives the kernel another boot id."""
    path = tmp_path_factory.mktemp("proc") / "boot_id"
    monkeypatch.setattr(identity_module, "BOOT_ID_PATH", path)
    count = 0

    def boot() -> None:
        nonlocal count
        count += 1
        path.write_text(f"1a0c7d2e-0000-0000-0000-{count:012}\n")

    boot()
    return boot


def settings(mode: FlushMode = ASYNC, replica_id: int | None = 2) -> StoreSettings:
    return replace(small_settings(flush_mode=mode), replica_id=replica_id)


async def identity_of(directory: Path, mode: FlushMode = ASYNC) -> Identity:
    """Open a store, give it a log, and kill its process; return who it was."""
    store = await opened(directory, settings(mode))
    if "orders" not in store.state.topics:
        await store.change(ORDERS)
    identity = store.identity
    assert identity is not None
    await abandon(store)
    return identity


@BOTH_MODES
async def test_a_store_has_a_uid_from_its_creation_on_and_keeps_it_over_restarts(
    tmp_path: Path, reboot: Callable[[], None], mode: FlushMode
) -> None:
    first = await identity_of(tmp_path, mode)
    assert (first.replica_id, first.former_uids) == (2, ())
    assert await identity_of(tmp_path, mode) == first  # killed under the same kernel

    store = await opened(tmp_path, settings(mode))
    await store.close()
    assert not (tmp_path / "abort").exists()
    reboot()
    assert await identity_of(tmp_path, mode) == first  # closed in order before


@pytest.mark.parametrize(
    ("before", "after", "is_kept"),
    [(SYNC, SYNC, True), (SYNC, ASYNC, False), (ASYNC, SYNC, False), (ASYNC, ASYNC, False)],
)
async def test_a_store_whose_machine_went_down_is_another_one_unless_it_had_flushed_all(
    tmp_path: Path,
    reboot: Callable[[], None],
    before: FlushMode,
    after: FlushMode,
    *,
    is_kept: bool,
) -> None:
    """Rule 8."""
    first = await identity_of(tmp_path, before)
    reboot()

    second = await identity_of(tmp_path, after)

    assert (second == first) == is_kept
    assert second.former_uids == (() if is_kept else (first.uid,))
    assert await identity_of(tmp_path, after) == second


@pytest.mark.parametrize("content", [b"", b"4711", b"boot", b"boot sync of others", b"\xff a\n"])
async def test_an_abort_file_of_rocketmq_or_an_older_version_counts_as_another_kernel(
    tmp_path: Path, content: bytes
) -> None:
    first = await identity_of(tmp_path)
    (tmp_path / "abort").write_bytes(content)

    second = await identity_of(tmp_path)

    assert second.former_uids[0] == first.uid
    assert read_mark(tmp_path) is not None


async def test_a_kernel_without_a_boot_id_is_never_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity_module, "BOOT_ID_PATH", tmp_path / "no such file")
    first = await identity_of(tmp_path)

    assert (await identity_of(tmp_path)).former_uids[0] == first.uid


@pytest.mark.parametrize("step", ["write_checked", "mark_as_open"])
async def test_a_kill_amid_the_start_never_leaves_the_former_uid(
    tmp_path: Path, reboot: Callable[[], None], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The new uid is durable before the mark names the new kernel."""
    first = await identity_of(tmp_path)
    reboot()
    module = "identity" if step == "write_checked" else "message_store"
    with monkeypatch.context() as kill:
        kill.setattr(f"eruca_broker.store.{module}.{step}", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            await opened(tmp_path, settings())

    assert first.uid in (await identity_of(tmp_path)).former_uids


async def test_a_wiped_disk_is_nobody(tmp_path: Path) -> None:
    first = await identity_of(tmp_path)
    shutil.rmtree(tmp_path / "config")  # only a part of the disk, or all but that part
    second = await identity_of(tmp_path)
    assert (second.replica_id, second.former_uids) == (2, ())
    assert second.uid != first.uid

    for name in ("commitlog", "consumequeue", "index"):
        shutil.rmtree(tmp_path / name)
    (tmp_path / "checkpoint").unlink()
    third = await identity_of(tmp_path)

    assert third.uid != second.uid
    assert third.former_uids == ()


@pytest.mark.parametrize("kind", ["cut", "changed", "empty", "directory"])
async def test_a_damaged_identity_proves_nothing(tmp_path: Path, kind: str) -> None:
    first = await identity_of(tmp_path)
    path = tmp_path / "config" / "replica.json"
    content = path.read_bytes()
    path.unlink()
    match kind:
        case "cut":
            path.write_bytes(content[:-5])
        case "changed":
            path.write_bytes(content.replace(b'"replica_id":2', b'"replica_id":3'))
        case "empty":
            path.touch()
        case _:
            path.mkdir()

    second = await identity_of(tmp_path)

    assert second.uid != first.uid
    assert second.former_uids == ()
    assert await identity_of(tmp_path) == second


async def test_a_store_of_another_replica_is_refused_and_left_alone(tmp_path: Path) -> None:
    first = await identity_of(tmp_path)
    before = (tmp_path / "abort").read_bytes()

    with pytest.raises(WrongReplicaError, match=r"is that of replica 2, .*_REPLICA_ID=2"):
        await opened(tmp_path, settings(replica_id=3))
    with pytest.raises(WrongReplicaError, match=r"is standalone: .* delete config/replica\.json"):
        await opened(tmp_path, settings(replica_id=None))

    assert (tmp_path / "abort").read_bytes() == before
    assert await identity_of(tmp_path) == first


async def test_a_standalone_broker_s_store_has_no_identity_until_it_joins_a_group(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    await send(store, b"kept")
    assert store.identity is None
    await store.close()
    assert not (tmp_path / "config" / "replica.json").exists()

    await identity_of(tmp_path)

    store = await opened(tmp_path, settings())
    assert bodies(store) == [b"kept"]
    await store.close()


async def test_a_store_that_gave_up_durable_records_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path, settings())
    await store.change(ORDERS)
    place = await send(store, b"rotten")
    await store.close()
    first = await identity_of(tmp_path)
    with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as segment:
        segment.seek(place.log_offset + 100)
        segment.write(b"\xff\xff")

    async def again() -> MessageStore:
        return await opened(tmp_path, replace(settings(), is_damage_cut=True))

    with monkeypatch.context() as kill:  # the new uid is durable before anything is cut
        kill.setattr("eruca_broker.store.recovery.recovery.handover.forget", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            await again()
    store = await again()

    assert bodies(store) == []
    assert store.identity is not None
    assert first.uid in store.identity.former_uids
    await store.close()


@pytest.mark.parametrize("place", [0, 7, 100])  # its size, its magic code, its body
async def test_a_store_that_lost_records_behind_a_damaged_one_is_another_one(
    tmp_path: Path, place: int
) -> None:
    """They were acknowledged before they were flushed, and the kernel had them all."""
    first = await identity_of(tmp_path)
    store = await opened(tmp_path, settings())
    places = [await send(store, body) for body in (b"kept", b"rotten", b"gone")]
    await abandon(store)
    flip(tmp_path, places[1].log_offset + place)

    store = await opened(tmp_path, settings())

    assert bodies(store) == [b"kept"]
    assert store.identity is not None
    assert store.identity.former_uids == (first.uid,)
    await abandon(store)
    assert (await identity_of(tmp_path)).former_uids == (first.uid,)  # once


async def test_a_store_whose_last_record_was_torn_by_a_kill_has_lost_nothing(
    tmp_path: Path,
) -> None:
    first = await identity_of(tmp_path)
    store = await opened(tmp_path, settings())
    await send(store, b"kept")
    torn = await send(store, b"torn")
    await abandon(store)
    with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as segment:
        segment.seek(torn.log_offset + 60)
        segment.write(bytes(1_000))

    assert await identity_of(tmp_path) == first


def flip(directory: Path, offset: int) -> None:
    """Change a byte of the log."""
    with (directory / "commitlog" / f"{0:020}").open("r+b") as segment:
        segment.seek(offset)
        [byte] = segment.read(1)
        segment.seek(offset)
        segment.write(bytes([byte ^ 0x10]))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("mode", FlushMode)
async def test_after_a_failed_flush_the_kernel_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: FlushMode
) -> None:
    """It may have dropped what it could not write. In sync mode none of that was acknowledged."""
    store = await opened(tmp_path, settings(mode))
    await store.change(ORDERS)
    first = store.identity
    assert first is not None
    with monkeypatch.context() as disk:
        flushes = Flushes(disk)
        flushes.failing = True
        sending = store.append(batch("orders", 0, [b"written"]))
        with pytest.raises(StoreFailedError) if mode is SYNC else nullcontext():
            await sending
        with pytest.raises(StoreFailedError):
            await store.upkeep.flush()
        await abandon(store)

    second = await identity_of(tmp_path, mode)

    assert second.former_uids == (() if mode is SYNC else (first.uid,))


async def test_a_replica_that_cannot_be_marked_as_open_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next start would take it to be closed in order, and keep a uid that promises too much."""
    await (await opened(tmp_path, settings())).close()
    with monkeypatch.context() as disk:
        disk.setattr(
            "eruca_broker.store.identity.sync_directory",
            Mock(side_effect=OSError(28, os.strerror(28))),
        )
        with pytest.raises(OSError, match="no room to mark"):
            await opened(tmp_path, settings())

    await (await opened(tmp_path, settings())).close()
