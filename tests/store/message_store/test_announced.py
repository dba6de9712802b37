"""The message store: batches that are announced first and appended before the next one."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from eruca.contract.errors import TopicNotFoundError
from eruca_broker.core.state.events import TopicDeleted
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.message_stores import BOTH_MODES, Flushes, bodies
from support.stores import batch
from support.waiting import until

pytestmark = pytest.mark.anyio


class Announced:
    """Announces batches, and notes which of them have been published."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.published: list[bytes] = []

    def announce(self, body: bytes) -> None:
        self._store.announce(partial(self.append, body))

    def append(self, body: bytes) -> None:
        self._store.append_then(
            batch("orders", 0, [body]), None, lambda _: self.published.append(body)
        )


@BOTH_MODES
async def test_an_announced_batch_comes_before_the_next_one(store: MessageStore) -> None:
    announced = Announced(store)
    announced.append(b"first")

    announced.announce(b"second")
    announced.announce(b"third")
    await store.append(batch("orders", 0, [b"fourth"]))

    assert announced.published == [b"first", b"second", b"third"]
    assert bodies(store) == [b"first", b"second", b"third", b"fourth"]


@BOTH_MODES
async def test_an_announced_batch_comes_before_a_group(store: MessageStore) -> None:
    announced = Announced(store)

    announced.announce(b"first")
    await store.append_group([batch("orders", 0, [b"second"]), batch("orders", 0, [b"third"])])

    assert bodies(store) == [b"first", b"second", b"third"]


@BOTH_MODES
async def test_an_announced_batch_needs_no_other_one(store: MessageStore) -> None:
    announced, published = Announced(store), asyncio.Event()

    def append() -> None:
        store.append_then(batch("orders", 0, [b"only"]), None, lambda _: published.set())

    store.announce(append)
    await published.wait()

    assert bodies(store) == [b"only"]
    announced.announce(b"another")
    await store.append(batch("orders", 0, [b"last"]))
    assert bodies(store) == [b"only", b"another", b"last"]


@BOTH_MODES
async def test_an_announced_batch_is_refused_once_its_topic_is_being_deleted(
    store: MessageStore,
) -> None:
    deleted = asyncio.ensure_future(store.change(TopicDeleted("orders")))
    await asyncio.sleep(0)  # it is accepted, and not published yet
    refusals: list[str] = []

    def append() -> None:
        try:
            store.append_then(batch("orders", 0, [b"late"]), None, lambda _: None)
        except TopicNotFoundError as error:
            refusals.append(error.detail)

    store.announce(append)
    await deleted

    assert refusals == ["topic 'orders' is being deleted"]


@pytest.mark.parametrize("mode", [FlushMode.SYNC])
async def test_a_batch_announced_during_a_flush_waits_for_its_end(
    store: MessageStore, flushes: Flushes
) -> None:
    announced = Announced(store)
    flushes.may_end.clear()
    count = flushes.count
    first = store.append(batch("orders", 0, [b"first"]))
    await until(lambda: flushes.count > count)

    announced.announce(b"second")
    await asyncio.sleep(0)
    assert not announced.published
    flushes.may_end.set()
    await first
    await until(lambda: announced.published == [b"second"])

    assert bodies(store) == [b"first", b"second"]


@BOTH_MODES
async def test_an_announced_batch_is_stored_before_the_store_closes(store: MessageStore) -> None:
    announced = Announced(store)

    announced.announce(b"only")
    await store.close()

    assert announced.published == [b"only"]
