"""Committing: one request after the other, so that an offset never goes back."""

from __future__ import annotations

import asyncio

import pytest

from eruca.aio.broker_fetcher import Prefetch
from eruca.aio.push.commits import Commits
from eruca.aio.push.held_queue import HeldQueue
from eruca.core.flow_control import FlowLimits
from eruca.core.message_queue import MessageQueue
from eruca.core.received_message import ReceivedMessage

pytestmark = pytest.mark.anyio


class NoIntake:
    """Takes nothing in."""

    def put(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None: ...

    def restart(self, held: HeldQueue) -> None: ...

    def progressed(self, held: HeldQueue) -> None: ...


class SlowStore:
    """Stores offsets as soon as it may."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.may_end = asyncio.Event()

    async def store(self, offsets: dict[HeldQueue, int]) -> None:
        self.begun += offsets.values()
        await self.may_end.wait()
        for held, offset in offsets.items():
            held.committed = offset


async def test_what_is_to_be_committed_waits_for_what_is_under_way() -> None:
    store = SlowStore()
    commits = Commits(store, seconds=5)
    held = HeldQueue(
        MessageQueue("orders", "a", 0),
        model="clustering",
        limits=FlowLimits(100, 1_000_000, None),
        prefetch=Prefetch(100, 1_000_000),
        intake=NoIntake(),
        offset=1,
    )
    commits.note(held)
    first = asyncio.create_task(commits.flush())
    await asyncio.sleep(0)
    held.process.put((), 2)
    commits.note(held)

    second = asyncio.create_task(commits.flush())
    for _ in range(5):
        await asyncio.sleep(0)
    assert store.begun == [1]

    store.may_end.set()
    await asyncio.gather(first, second)
    assert store.begun == [1, 2]
