"""The message store when a flush of the log fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eruca.contract.errors import StoreFailedError
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.disks import ForgetfulDisk
from support.message_stores import BOTH_MODES, ORDERS, Flushes, bodies, found_by_key, opened, send
from support.stores import abandon, small_settings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", [FlushMode.SYNC])
async def test_when_a_flush_fails_nothing_is_acknowledged_any_more(
    store: MessageStore, tmp_path: Path, flushes: Flushes
) -> None:
    await send(store, b"safe")
    flushes.failing = True

    outcomes = await asyncio.gather(
        *(send(store, b"doubtful") for _ in range(3)), return_exceptions=True
    )

    assert [type(outcome) for outcome in outcomes] == [StoreFailedError] * 3
    flushes.failing = False  # the kernel would call the next one a success
    with pytest.raises(StoreFailedError):
        await send(store, b"refused")
    with pytest.raises(StoreFailedError):
        await store.upkeep.flush()
    await store.upkeep.probe_disk()
    assert isinstance(store.refusal, StoreFailedError)
    assert bodies(store) == found_by_key(store) == [b"safe"]
    assert store.visible_offset == store.flushed_offset
    await store.close()
    assert (tmp_path / "abort").exists()


@pytest.mark.parametrize("mode", [FlushMode.SYNC])
async def test_what_was_accepted_while_a_flush_failed_is_not_acknowledged_either(
    store: MessageStore, flushes: Flushes
) -> None:
    """It would lie behind a hole. Every moment between acceptance and failure is tried."""
    flushes.failing = True
    sending = [asyncio.ensure_future(send(store, b"first"))]
    while store.refusal is None:
        await asyncio.sleep(0)
        if store.refusal is None:
            sending.append(asyncio.ensure_future(send(store, b"%d" % len(sending))))
    flushes.failing = False

    outcomes = await asyncio.gather(*sending, return_exceptions=True)

    assert {type(outcome) for outcome in outcomes} == {StoreFailedError}
    assert bodies(store) == []


@BOTH_MODES
async def test_a_restart_recovers_from_a_failed_flush_and_finds_what_was_acknowledged(
    store: MessageStore, tmp_path: Path, flushes: Flushes, mode: FlushMode
) -> None:
    await send(store, b"acknowledged")
    flushes.failing = True
    if mode is FlushMode.SYNC:
        with pytest.raises(StoreFailedError):
            await send(store, b"in doubt")
    else:
        with pytest.raises(StoreFailedError):
            await store.upkeep.flush()
    await store.close()
    flushes.failing = False

    store = await opened(tmp_path, small_settings(flush_mode=mode))

    assert bodies(store)[0] == b"acknowledged"
    await send(store, b"after")
    assert bodies(store)[-1] == b"after"
    await store.close()


async def test_what_a_failed_flush_has_given_up_is_written_again_before_it_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the next power cut would leave a hole, and acknowledged messages behind it."""
    disk = ForgetfulDisk(monkeypatch, tmp_path / "commitlog")
    settings = small_settings(flush_mode=FlushMode.SYNC)
    store = await opened(tmp_path, settings)
    await store.change(ORDERS)
    await send(store, b"acknowledged")
    await store.upkeep.checkpoint()
    disk.is_failing = True
    with pytest.raises(StoreFailedError):
        await send(store, b"in doubt")
    await store.close()
    disk.is_failing = False

    store = await opened(tmp_path, settings)
    await send(store, b"after")
    await store.upkeep.checkpoint()
    await abandon(store)
    disk.cut_power()

    store = await opened(tmp_path, settings)
    assert bodies(store) == [b"acknowledged", b"in doubt", b"after"]
    await store.close()
