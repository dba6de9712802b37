"""Orderly runners: messages of a queue in order, retried in place, and committed behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eruca
from eruca.aio.push.orderly_runner import OrderlyRunner
from eruca.core.consuming.consume_context import ConsumeContext
from eruca.core.consuming.consume_status import ConsumeStatus
from eruca.core.consuming.orderly_result import SUSPEND_SECONDS_MIN
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage
from support.fed_runners import Feeder, table_of
from support.push import push_settings
from support.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


COUNT: Final = 8  # messages of a queue
QUEUES: Final = 2

Handler = Callable[[ReceivedMessage], Awaitable[ConsumeStatus | None]]


class EndlessRetries:
    """A retry limit that no message reaches."""

    async def max_times(self, _queue: MessageQueue) -> int | None:
        """Return that there is no limit."""
        return None


class Rig(Feeder):
    """An orderly runner with one handler, which retries as soon as it may."""

    def __init__(self, handler: Any, **given: Any) -> None:  # noqa: ANN401
        self.failures: list[BaseException] = []
        retries = eruca.Retries(suspend_seconds=SUSPEND_SECONDS_MIN)
        self.runner = OrderlyRunner(
            push_settings(ordered=True, retries=retries, **given),
            table_of(handler),
            None,
            retry_limit=EndlessRetries(),  # type: ignore[arg-type]
            on_lost=lambda _: None,
            on_failure=self.failures.append,
        )
        super().__init__(self.runner)


@asynccontextmanager
async def running(handler: Any, **given: Any) -> AsyncIterator[Rig]:  # noqa: ANN401
    """Run a rig; nothing unexpected may have ended one of its tasks."""
    rig = Rig(handler, **given)
    try:
        yield rig
    finally:
        await rig.runner.close()
    assert rig.failures == []


KINDS: Final = ("quick", "waits", "suspends", "raises")


@settings(max_examples=25, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=COUNT, max_size=COUNT),
    parts=st.lists(st.integers(1, COUNT), min_size=1, max_size=4),
    takes_context=st.booleans(),
)
def test_each_queue_is_handled_in_order_and_a_failed_message_before_any_later_one(
    kinds: list[str], parts: list[int], *, takes_context: bool
) -> None:
    asyncio.run(consume(kinds, parts, takes_context=takes_context))


async def consume(kinds: list[str], parts: list[int], *, takes_context: bool) -> None:
    begun: dict[int, list[int]] = {number: [] for number in range(QUEUES)}
    running_in: set[int] = set()

    async def handle(message: ReceivedMessage) -> ConsumeStatus | None:
        number, offset = message.queue.queue_id, message.queue_offset
        is_retry = offset in begun[number]
        begun[number].append(offset)
        assert number not in running_in
        running_in.add(number)
        try:
            kind = kinds[offset]
            if kind == "waits":
                await asyncio.sleep(0)
            if kind == "raises" and not is_retry:
                raise ValueError(kind)
            return ConsumeStatus.SUSPEND if kind == "suspends" and not is_retry else None
        finally:
            running_in.remove(number)

    async def handle_with(
        message: ReceivedMessage, context: ConsumeContext
    ) -> ConsumeStatus | None:
        assert not context.is_lost
        return await handle(message)

    async with running(handle_with if takes_context else handle) as rig:
        queues = [rig.hold(number) for number in range(QUEUES)]
        for held in queues:
            left = COUNT
            for part in [*parts, COUNT]:
                rig.fill(held, min(part, left))
                left -= min(part, left)
        await until(
            lambda: rig.failures or all(held.process.commit_offset == COUNT for held in queues)
        )

    wanted = [
        offset
        for offset, kind in enumerate(kinds)
        for _ in range(2 if kind in ("suspends", "raises") else 1)
    ]
    for number, held in enumerate(queues):
        assert begun[number] == wanted
        assert rig.commits[held] == sorted(rig.commits[held])
        assert (held.in_hand, held.process.count, held.finished) == (0, 0, [])


async def test_a_handler_that_waits_does_not_hold_back_what_was_finished_before_it() -> None:
    waiting = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 3:
            waiting.set()
            await asyncio.Event().wait()

    async with running(handle) as rig:
        held = rig.hold()
        rig.fill(held, 5)
        await waiting.wait()
        await until(lambda: held.process.commit_offset == 3)

        assert held.process.offsets == [3, 4]


async def test_a_handler_that_pauses_its_consumer_gets_nothing_until_it_is_resumed() -> None:
    handled: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.queue_offset)
        if message.queue_offset == 1:
            held.is_paused = True

    async with running(handle) as rig:
        held = rig.hold()
        rig.fill(held, 4)
        await until(lambda: held.process.commit_offset == 2)
        assert handled == [0, 1]

        held.is_paused = False
        rig.runner.resume(held)
        await until(lambda: held.process.commit_offset == 4)

    assert handled == [0, 1, 2, 3]


async def test_a_queue_that_is_drained_ends_with_the_message_in_hand() -> None:
    may_end, is_waiting = asyncio.Event(), asyncio.Event()
    handled: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.queue_offset)
        if message.queue_offset == 1:
            is_waiting.set()
            await may_end.wait()

    async with running(handle) as rig:
        held = rig.hold()
        rig.fill(held, 4)
        await is_waiting.wait()
        draining = asyncio.ensure_future(rig.runner.drain(held))
        await until(lambda: held.is_draining)
        may_end.set()
        await draining

        assert handled == [0, 1]
        assert held.process.commit_offset == 2


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


async def test_handlers_that_never_wait_leave_the_event_loop_its_turns() -> None:
    handled: list[int] = []
    is_enough = False

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.queue_offset)
        if not is_enough and len(handled) > 1:
            rig.fill(held, 1)  # there is always another one

    async with running(handle) as rig:
        held = rig.hold()
        rig.fill(held, 10)
        await until(lambda: len(handled) > 1_000)
        is_enough = True
