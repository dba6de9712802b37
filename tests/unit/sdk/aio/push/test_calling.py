"""Calling handlers: whatever a plain one does ends its own call and nothing else."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from eruca.aio.push.calling import Calls, tell
from eruca.contract.records import Record, encode_record
from eruca.core.consuming.consume_status import ConsumeStatus
from eruca.core.consuming.handler_table import Registration
from eruca.core.filters.tag_expression import Subscription
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage
from support.push import push_settings

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt("in a pool's process"), "KeyboardInterrupt: in a pool's process"),
    ],
    ids=["sys.exit", "interrupt"],
)
async def test_what_ends_processes_is_a_failure_of_a_plain_handler_and_ends_no_event_loop(
    raised: BaseException, told: str
) -> None:
    def leave(_: ReceivedMessage) -> None:
        raise raised

    message = poison()
    registration = Registration(leave, Subscription("*"), False, takes_context=False)
    calls = Calls(push_settings())

    with ThreadPoolExecutor(1) as threads:
        calling = asyncio.get_running_loop().run_in_executor(
            threads, calls.call, registration, [message], None
        )
        await asyncio.wait([calling])

    assert calling.exception() is None
    outcome = calling.result()
    assert outcome.status is ConsumeStatus.RECONSUME_LATER
    assert outcome.error == told


@pytest.mark.parametrize(("ordered", "failed_count"), [(False, 1), (True, 0)])
def test_a_plain_handler_that_exceeds_the_limit_has_failed_unless_its_queue_waits_for_it(
    *, ordered: bool, failed_count: int
) -> None:
    settings = push_settings(consume_timeout_seconds=0.01, ordered=ordered)

    def exceed(_: ReceivedMessage) -> None:
        begun_at = time.monotonic()
        while time.monotonic() - begun_at < settings.consume_timeout_seconds:
            pass

    calls = Calls(settings)
    calls.call(
        Registration(exceed, Subscription("*"), False, takes_context=False), [poison()], None
    )

    window = calls.last_minute()
    assert (window.message_count, window.failed_count) == (1, failed_count)


async def test_a_cancelled_wait_in_a_handler_is_its_failure_after_a_failed_task_group() -> None:
    async def fail() -> None:
        raise ValueError

    async def ask_for_several(_: ReceivedMessage) -> None:
        with suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())

    async def ask_for_one(_: ReceivedMessage) -> None:
        asking = asyncio.ensure_future(asyncio.Event().wait())
        asking.cancel()
        await asking

    calls = Calls(push_settings())
    outcomes = []

    async def work() -> None:
        for handler in (ask_for_several, ask_for_one):
            registration = Registration(handler, Subscription("*"), True, takes_context=False)
            outcomes.append(await calls.call_async(registration, [poison()], None))

    await asyncio.wait([asyncio.ensure_future(work())])

    assert [outcome.status for outcome in outcomes] == [
        ConsumeStatus.SUCCESS,
        ConsumeStatus.RECONSUME_LATER,
    ]


def poison() -> ReceivedMessage:
    record = encode_record(Record(topic="orders", body=b"poison"))
    return ReceivedMessage(QUEUE, 0, record, 0, len(record))


QUEUE = MessageQueue("orders", "a", 0)


async def test_a_listener_that_waited_for_something_cancelled_has_failed_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def on_assigned(_: list[MessageQueue]) -> None:
        warming_up = asyncio.ensure_future(asyncio.Event().wait())
        warming_up.cancel()
        await warming_up

    await tell(on_assigned, [QUEUE])

    assert "the listener for assignments failed" in caplog.text


async def test_a_listener_does_not_outlast_the_cancellation_of_its_caller() -> None:
    is_waiting = asyncio.Event()

    async def on_assigned(_: list[MessageQueue]) -> None:
        is_waiting.set()
        await asyncio.Event().wait()

    telling = asyncio.ensure_future(tell(on_assigned, [QUEUE]))
    await is_waiting.wait()
    telling.cancel()
    await asyncio.wait([telling])

    assert telling.cancelled()
