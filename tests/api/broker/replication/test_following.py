"""A master and a replica over HTTP: two real stores, the real feed and follower, no arbiter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from eruca.contract.errors import StaleEpochError
from eruca_broker.core.replication.following import FollowState
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.replication_pairs import (
    MASTER,
    SECOND,
    THIRD,
    Master,
    Replica,
    leading,
    standing_by,
)
from support.stores import all_answers
from support.waiting import until

pytestmark = pytest.mark.anyio

BOTH = frozenset({MASTER, SECOND})
TEXT = "x" * 900
BOTH_MODES = pytest.mark.parametrize("flush_mode", FlushMode)


def client_of(master: Master) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"{master.url}/v1", timeout=20)


async def send(client: httpx.AsyncClient, count: int = 1, text: str = TEXT) -> httpx.Response:
    messages = [{"body": {"text": text}, "keys": ["all"], "tag": "red"} for _ in range(count)]
    answer = await client.post("/topics/orders/messages", json={"messages": messages})
    assert answer.status_code == 201, answer.text
    return answer


def log_of(store: MessageStore) -> bytes:
    return b"".join(store.log_bytes(store.log_min_offset, store.log_max_offset))


async def equal(master: Master, replica: Replica) -> None:
    """Wait until the replica has confirmed everything; then compare all that both answer."""
    await until(lambda: replica.store.confirmed_offset == master.store.log_max_offset)
    assert log_of(replica.store) == log_of(master.store)
    assert all_answers(replica.store) == all_answers(master.store)
    assert replica.store.state.epochs == master.store.state.epochs


async def following(replica: Replica) -> None:
    await until(lambda: replica.follower.state is FollowState.FOLLOWING)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Master, Replica, httpx.AsyncClient]]:
    """A master whose only other member follows."""
    async with (
        leading(tmp_path / "master", in_sync=BOTH) as master,
        standing_by(tmp_path / "replica") as replica,
        client_of(master) as client,
    ):
        replica.follow(master.url)
        await following(replica)
        yield master, replica, client


@BOTH_MODES
async def test_a_replica_becomes_equal_and_stays_equal(
    tmp_path: Path, flush_mode: FlushMode
) -> None:
    async with (
        leading(tmp_path / "master", flush_mode=flush_mode) as master,
        standing_by(tmp_path / "replica", flush_mode=flush_mode) as replica,
        client_of(master) as client,
    ):
        for _ in range(12):
            await send(client, 20)
        assert master.store.segment_count > 3
        replica.follow(master.url)
        await equal(master, replica)
        await until(lambda: master.feed.candidates() == [SECOND])

        await master.feed.expecting(SECOND)
        master.feed.answered(BOTH)
        await asyncio.gather(*(send(client, 3) for _ in range(40)))
        await equal(master, replica)
        if flush_mode is FlushMode.SYNC:
            assert replica.store.flushed_offset == master.store.log_max_offset


async def test_nothing_is_visible_while_a_member_is_away(tmp_path: Path) -> None:
    """Rules 6 and 7: confirmed never moves without a member, connected or not."""
    async with (
        leading(tmp_path / "master", in_sync=BOTH) as master,
        standing_by(tmp_path / "replica") as replica,
        client_of(master) as client,
    ):
        store, confirmed = master.store, master.store.confirmed_offset
        sending = asyncio.create_task(send(client))
        await until(lambda: store.durable_offset == store.log_max_offset > confirmed)
        assert store.confirmed_offset == confirmed, "not even the epoch has begun"
        assert not sending.done()

        replica.follow(master.url)
        await sending
        await equal(master, replica)

        await replica.stop_following()
        end = store.log_max_offset
        sending = asyncio.create_task(send(client))
        await until(lambda: store.durable_offset > end)
        assert store.confirmed_offset == end
        assert not sending.done()

        master.feed.asking(frozenset({MASTER}))
        assert store.confirmed_offset == end, "the arbiter has not answered"
        master.feed.answered(frozenset({MASTER}))
        await sending
        assert store.confirmed_offset == store.log_max_offset


async def test_a_newcomer_is_waited_for_before_the_arbiter_is_asked(
    pair: tuple[Master, Replica, httpx.AsyncClient],
) -> None:
    """Rule 6."""
    master, replica, client = pair
    await send(client)
    master.feed.asking(BOTH | {THIRD})
    end = master.store.log_max_offset

    sending = asyncio.create_task(send(client))
    await until(lambda: replica.store.log_max_offset > end)
    await until(lambda: dict(master.feed.copies.held)[SECOND] > end)

    assert master.store.confirmed_offset == end
    master.feed.answered(BOTH)
    await sending


async def test_a_hand_over_waits_for_the_acknowledgement_of_the_target(
    pair: tuple[Master, Replica, httpx.AsyncClient],
) -> None:
    master, replica, client = pair
    await send(client, 5)
    end = master.store.log_max_offset

    await master.feed.acknowledged(SECOND, end)
    await master.feed.confirmed(end)

    assert replica.store.log_max_offset == end
    waiting = asyncio.create_task(master.feed.acknowledged(SECOND, end + 1))
    await asyncio.sleep(0)
    master.feed.close()
    with pytest.raises(StaleEpochError):
        await waiting


async def test_a_replica_learns_of_the_last_confirmation_without_another_write(
    pair: tuple[Master, Replica, httpx.AsyncClient],
) -> None:
    master, replica, client = pair
    await send(client)

    await equal(master, replica)
    assert replica.follower.behind_bytes == 0
    assert replica.follower.status().reason is None
