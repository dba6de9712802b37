"""The time in which a key is known: during a delay, after a restart, and no longer."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from eruca_broker.store.projecting.dispatcher import Dispatcher
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, client_of, open_broker
from support.clocks import ManualClock
from support.idempotent_sends import PAID, is_replay, send, stored
from support.stores import delete_oldest_segments

pytestmark = pytest.mark.anyio

DAY: Final = 86_400


async def test_a_delayed_message_is_known_while_it_waits_and_when_it_was_delivered(
    app: ServiceApp, client: httpx.AsyncClient, clock: ManualClock
) -> None:
    later = PAID | {"delay_seconds": 60}
    first = await send(client, later)
    clock.advance(20)  # the span counts from the first
    assert is_replay(first, await send(client, later))
    for other in (PAID, PAID | {"delay_seconds": 61}, PAID | {"delay_level": 6}):
        refused = await send(client, other)
        assert refused.json()["code"] == "idempotency-key-reused"
        assert "its delay" in refused.json()["detail"]
        assert "waiting" in refused.json()["detail"]

    clock.advance(41)
    await broker_of(app).timers.fire()
    assert await stored(client) == 1

    assert is_replay(first, await send(client, later))
    assert await stored(client) == 1


@pytest.mark.parametrize("delay", [{"delay_level": 3}, {"deliver_at": "2023-11-14T22:14:20.5Z"}])
async def test_a_level_and_a_time_are_known_again(
    client: httpx.AsyncClient, clock: ManualClock, delay: dict[str, Any]
) -> None:
    first = await send(client, PAID | delay)
    clock.advance(5)

    assert is_replay(first, await send(client, PAID | delay))


async def test_a_time_that_had_passed_is_known_again(client: httpx.AsyncClient) -> None:
    past = PAID | {"deliver_at": "2023-11-14T22:13:19Z"}
    first = await send(client, past)

    assert is_replay(first, await send(client, past))


async def test_a_batch_of_which_some_wait_is_known_again(client: httpx.AsyncClient) -> None:
    messages = [
        PAID,
        PAID | {"delay_seconds": 60},
        PAID | {"body": {"text": "2"}},
        PAID | {"delay_level": 4},
        PAID | {"delay_seconds": 30},
    ]
    first = await send(client, {"messages": messages})

    assert is_replay(first, await send(client, {"messages": messages}))
    refused = await send(client, {"messages": [*messages[:4], PAID]})
    assert refused.json()["code"] == "idempotency-key-reused"


async def test_the_window_ends_and_the_key_is_free_again(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    first = await send(client, PAID)
    clock.advance(DAY - 1)
    assert is_replay(first, await send(client, PAID))
    clock.advance(2)

    again = await send(client, PAID | {"body": {"text": "another day"}})

    assert (again.status_code, "idempotent-replayed" in again.headers) == (201, False)
    assert again.json()["queue_offset"] == 1
    assert is_replay(again, await send(client, PAID | {"body": {"text": "another day"}}))


async def test_a_topic_of_the_same_name_knows_no_key_of_the_deleted_one(
    client: httpx.AsyncClient,
) -> None:
    await send(client, PAID)
    await send(client, PAID | {"delay_seconds": 60}, "later")
    await client.delete("/topics/orders")

    for key, message in (("order-17", PAID), ("later", PAID | {"delay_seconds": 60})):
        assert "idempotent-replayed" not in (await send(client, message, key)).headers


async def test_what_retention_has_deleted_is_stored_again(tmp_path: Path) -> None:
    async with (
        open_broker(tmp_path / "small", segment_bytes=64 * 1024) as app,
        client_of(app) as client,
    ):
        first = await send(client, PAID)
        for _ in range(4):  # fills segments
            await client.post("/topics/other/messages", json={"body": {"text": "x" * 40_000}})
        store = broker_of(app).store
        deleted = await delete_oldest_segments(store, 1)
        assert deleted[0] > first.json()["log_offset"]

        again = await send(client, PAID)

        assert (again.status_code, "idempotent-replayed" in again.headers) == (201, False)


@pytest.mark.parametrize("is_index_lost", [False, True])
async def test_a_key_is_known_after_a_restart(tmp_path: Path, *, is_index_lost: bool) -> None:
    contents = (PAID, PAID | {"delay_seconds": 600}, {"messages": [PAID, PAID]})
    async with open_broker(tmp_path / "again") as app, client_of(app) as client:
        firsts = [await send(client, one, f"k{n}") for n, one in enumerate(contents)]
    if is_index_lost:
        shutil.rmtree(tmp_path / "again" / "index")

    async with open_broker(tmp_path / "again") as app, client_of(app) as client:
        for number, (first, content) in enumerate(zip(firsts, contents, strict=True)):
            assert is_replay(first, await send(client, content, f"k{number}"))


async def test_a_key_is_known_while_the_index_is_behind(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dispatcher, "catch_up_index", _no_room)
    first = await send(client, PAID)

    assert is_replay(first, await send(client, PAID))


def _no_room(_dispatcher: Dispatcher) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")
