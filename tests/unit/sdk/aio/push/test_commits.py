"""Committing: one request after the other, so that an offset never goes back."""

from __future__ import annotations

import asyncio
import json

import pytest

from eruca.aio.cluster.group_api import GroupApi
from eruca.aio.http.transport import HttpResponse
from eruca.aio.pulling.broker_fetcher import Prefetch
from eruca.aio.push.commits import BrokerOffsets, Commits
from eruca.aio.push.held_queue import HeldQueue
from eruca.contract.errors import ValidationError
from eruca.core.consuming.flow_control import FlowLimits
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage
from support.scripted_transport import Request, ScriptedTransport, problem_answer

pytestmark = pytest.mark.anyio


class NoIntake:
    """Takes nothing in."""

    def put(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None: ...

    def restart(self, held: HeldQueue) -> None: ...

    def progressed(self, held: HeldQueue) -> None: ...

    def skipped(self, held: HeldQueue, message: ReceivedMessage) -> bool:
        raise AssertionError(message)


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


def held_queue(queue_id: int, *, offset: int) -> HeldQueue:
    return HeldQueue(
        MessageQueue("orders", "a", queue_id),
        model="clustering",
        limits=FlowLimits(100, 1_000_000, None),
        prefetch=Prefetch(100, 1_000_000),
        intake=NoIntake(),
        offset=offset,
        token=7,
    )


async def test_what_is_to_be_committed_waits_for_what_is_under_way() -> None:
    store = SlowStore()
    commits = Commits(store, seconds=5)
    held = held_queue(0, offset=1)
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


async def test_an_offset_behind_its_queue_s_end_is_left_out_and_holds_up_no_other() -> None:
    """As after a power cut that took what was read: the next pull says where to go on."""
    requests: list[dict[int, int]] = []

    async def answer(request: Request) -> HttpResponse:
        entries = json.loads(request.body)["offsets"]
        requests.append({entry["queue_id"]: entry["offset"] for entry in entries})
        faults = [
            {"pointer": f"/body/offsets/{place}/offset", "detail": "behind the end"}
            for place, entry in enumerate(entries)
            if entry["offset"] > 5
        ]
        if not faults:
            return HttpResponse(204, {}, b"")
        return problem_answer(ValidationError("behind the end", errors=faults))

    beyond, within = held_queue(0, offset=9), held_queue(1, offset=4)
    transport = ScriptedTransport(answer)
    api = GroupApi(transport, "g", client_id="c", incarnation="1", timeout=20)
    commits = Commits(BrokerOffsets(api, lambda _: "http://broker", lambda _: None), seconds=5)
    for held in (beyond, within):
        commits.note(held)
    await commits.flush()
    commits.note(beyond)
    await commits.flush()
    await transport.close()

    assert [sorted(request.items()) for request in requests] == [[(0, 9), (1, 4)], [(1, 4)]]
    assert within.committed == 4
