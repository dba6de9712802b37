"""Concurrent runners: each message handled once, commits behind it, and a loop that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.aio.push.calling import Outcome
from eruca.aio.push.concurrent_runner import ConcurrentRunner
from eruca.aio.push.held_queue import HeldQueue
from eruca.core.consuming.consume_context import ConsumeContext
from eruca.core.consuming.consume_status import ConsumeStatus
from eruca.core.messages.received_message import ReceivedMessage
from support.fed_runners import Feeder, table_of
from support.push import push_settings
from support.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


COUNT: Final = 12  # messages of a queue
QUEUES: Final = 2

Handler = Callable[[ReceivedMessage], Awaitable[ConsumeStatus | None]]


class SendBacks:
    """Takes every failed message, except the refused ones."""

    def __init__(self, refused: Collection[int] = ()) -> None:
        self.taken: list[int] = []
        self._refused = refused

    async def retry(
        self,
        held: HeldQueue,
        messages: Sequence[ReceivedMessage],
        outcome: Outcome,
        context: ConsumeContext | None,
    ) -> list[ReceivedMessage]:
        """Return those that are not taken."""
        await asyncio.sleep(0)
        self.taken += [m.queue_offset for m in messages if m.queue_offset not in self._refused]
        return [m for m in messages if m.queue_offset in self._refused]


class Rig(Feeder):
    """A concurrent runner with one handler."""

    def __init__(self, handler: Handler, send_backs: SendBacks, **given: Any) -> None:  # noqa: ANN401
        self.failures: list[BaseException] = []
        self.runner = ConcurrentRunner(
            push_settings(**given),
            table_of(handler),
            send_backs,
            on_lost=lambda _: None,
            on_failure=self.failures.append,
        )
        super().__init__(self.runner)


@asynccontextmanager
async def running(
    handler: Handler,
    send_backs: SendBacks | None = None,
    **given: Any,  # noqa: ANN401
) -> AsyncIterator[Rig]:
    """Run a rig; nothing unexpected may have ended one of its tasks."""
    rig = Rig(handler, send_backs or SendBacks(), **given)
    try:
        yield rig
    finally:
        await rig.runner.close()
    assert rig.failures == []


KINDS: Final = ("quick", "waits", "says later", "raises", "is not sent back")


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=COUNT, max_size=COUNT),
    concurrency=st.integers(1, 4),
    parts=st.lists(st.integers(1, COUNT), min_size=1, max_size=4),
)
def test_each_message_is_handled_once_and_no_commit_passes_an_unfinished_one(
    kinds: list[str], concurrency: int, parts: list[int]
) -> None:
    asyncio.run(consume(kinds, concurrency, parts))


async def consume(kinds: list[str], concurrency: int, parts: list[int]) -> None:
    begun: list[tuple[int, int]] = []
    finished: set[tuple[int, int]] = set()
    at_once = 0

    async def handle(message: ReceivedMessage) -> ConsumeStatus | None:
        nonlocal at_once
        at_once += 1
        assert at_once <= concurrency
        try:
            place = (message.queue.queue_id, message.queue_offset)
            begun.append(place)
            kind = kinds[message.queue_offset]
            if kind == "waits":
                await asyncio.sleep(0)
            if kind in ("raises", "is not sent back"):
                raise ValueError(kind)
            finished.add(place)
            return ConsumeStatus.RECONSUME_LATER if kind == "says later" else None
        finally:
            at_once -= 1

    stuck = [offset for offset, kind in enumerate(kinds) if kind == "is not sent back"]
    send_backs = SendBacks(stuck)
    async with running(handle, send_backs, concurrency=concurrency) as rig:
        queues = [rig.hold(number) for number in range(QUEUES)]
        for held in queues:
            left = COUNT
            for part in [*parts, COUNT]:
                rig.fill(held, min(part, left))
                left -= min(part, left)
        await until(
            lambda: (
                rig.failures
                or (len(begun) == COUNT * QUEUES and not any(held.in_hand for held in queues))
            )
        )

    assert sorted(begun) == [(number, o) for number in range(QUEUES) for o in range(COUNT)]
    assert sorted(send_backs.taken) == sorted(
        [o for o, kind in enumerate(kinds) if kind in ("says later", "raises")] * QUEUES
    )
    for held in queues:
        assert held.process.offsets == stuck
        assert held.process.commit_offset == min(stuck, default=COUNT)
        assert rig.commits[held] == sorted(rig.commits[held])
        assert not held.finished


async def test_a_handler_that_waits_does_not_hold_back_what_was_finished_before_it() -> None:
    waiting = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 3:
            waiting.set()
            await asyncio.Event().wait()

    async with running(handle, concurrency=1) as rig:
        held = rig.hold()
        rig.fill(held, 5)
        await waiting.wait()
        await until(lambda: held.process.commit_offset == 3)

        assert held.in_hand == 1


async def test_a_waiting_handler_leaves_the_next_messages_to_others() -> None:
    handled: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.queue_offset)
        if message.queue_offset == 0:
            await asyncio.Event().wait()

    async with running(handle, concurrency=2) as rig:
        held = rig.hold()
        rig.fill(held, 5)
        await until(lambda: handled == [0, 1, 2, 3, 4])
        await until(lambda: held.process.offsets == [0])


async def test_handlers_that_never_wait_leave_the_event_loop_its_turns() -> None:
    handled: list[int] = []
    is_enough = False

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.queue_offset)
        if not is_enough and len(handled) > 1:
            rig.fill(held, 1)  # there is always another one

    async with running(handle, concurrency=3) as rig:
        held = rig.hold()
        rig.fill(held, 10)
        await until(lambda: len(handled) > 1_000)
        is_enough = True


async def test_a_queue_that_a_thread_shuts_out_begins_no_other_message() -> None:
    handled: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.queue_offset)
        if message.queue_offset == 2:
            held.is_draining = True

    async with running(handle, concurrency=2) as rig:
        held = rig.hold()
        rig.fill(held, 9)
        await held.until_idle()
        await until(lambda: held.process.commit_offset == 3)

        assert handled == [0, 1, 2]


async def test_a_handler_that_pauses_its_consumer_gets_nothing_until_it_is_resumed() -> None:
    handled: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.queue_offset)
        if message.queue_offset == 1:
            held.is_paused = True
            rig.runner.pause(held)

    async with running(handle) as rig:
        held = rig.hold()
        rig.fill(held, 4)
        await until(lambda: held.process.commit_offset == 2)
        assert handled == [0, 1]

        held.is_paused = False
        rig.runner.resume(held)
        await until(lambda: held.process.commit_offset == 4)

    assert handled == [0, 1, 2, 3]


async def test_results_of_a_lost_queue_do_not_count() -> None:
    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 1:
            rig.runner.drop(held)

    async with running(handle) as rig:
        held = rig.hold()
        rig.fill(held, 4)
        await until(lambda: held.begun_count > 0 and not held.in_hand)

        assert held.process.commit_offset == 0
        assert not held.finished


async def test_a_message_that_takes_too_long_fails_alone() -> None:
    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 1:
            await asyncio.Event().wait()

    send_backs = SendBacks()
    async with running(handle, send_backs, concurrency=1, consume_timeout_seconds=0.2) as rig:
        held = rig.hold()
        rig.fill(held, 4)
        await until(lambda: held.process.commit_offset == 4)

    assert send_backs.taken == [1]
