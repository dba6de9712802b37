"""Failures of handlers: whatever one raises, returns or takes too long for is that message's."""

from __future__ import annotations

import asyncio
import logging
import os
import threading

import pytest

import eruca
from eruca import ConsumeStatus
from support.push import send
from support.retried import dead_letters, is_committed
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio


@pytest.fixture
def unlogged(caplog: pytest.LogCaptureFixture) -> None:
    """Log nothing: the tests' processes cannot pass on text that is not UTF-8."""
    caplog.set_level(logging.CRITICAL, "eruca")


class UnshowableError(Exception):
    """An exception that fails when its text is asked for."""

    def __str__(self) -> str:
        raise TypeError("no text")


@pytest.mark.parametrize(
    ("failure", "last_error"),
    [
        (ValueError(os.fsdecode(b"no file \xff")), "ValueError: no file \\udcff"),
        (UnshowableError(), "UnshowableError: (unprintable)"),
        (asyncio.CancelledError("its own loop"), "CancelledError: its own loop"),
    ],
    ids=["not in UTF-8", "not to be shown", "cancelled"],
)
@pytest.mark.parametrize("kind", ["async", "plain", "ordered"])
@pytest.mark.usefixtures("unlogged")
async def test_whatever_a_handler_raises_is_its_messages_failure_and_no_other(
    client: eruca.AsyncClient, topic: str, failure: BaseException, last_error: str, kind: str
) -> None:
    seen: list[str] = []
    consumer = client.push_consumer(
        topic, start="earliest", retries=eruca.Retries(retries_max=0), ordered=kind == "ordered"
    )

    def handle(message: eruca.ReceivedMessage) -> None:
        seen.append(message.text())
        if message.text() == "1":
            raise failure

    async def on_loop(message: eruca.ReceivedMessage) -> None:
        handle(message)

    consumer.subscribe(topic, handler=on_loop if kind == "async" else handle)
    await send(client, topic, range(3), key="one queue")
    async with consumer:
        await until_told(lambda: is_committed(client, topic, 3))

    assert sorted(seen) == ["0", "1", "2"]
    [letter] = await dead_letters(client, topic)
    assert letter["last_error"] == last_error


async def test_a_thread_that_takes_too_long_has_its_message_sent_back(
    client: eruca.AsyncClient, topic: str
) -> None:
    go = threading.Event()
    attempts: list[int] = []
    consumer = client.push_consumer(
        topic, start="earliest", consume_timeout_seconds=0.1, retries=eruca.Retries(retries_max=0)
    )

    @consumer.on(topic)
    def slow(message: eruca.ReceivedMessage) -> None:
        attempts.append(message.attempt)
        assert go.wait(20)

    await send(client, topic, [0])
    async with consumer:
        await until_told(lambda: is_committed(client, topic, 1))
        go.set()

    [letter] = await dead_letters(client, topic)
    assert letter["reason"] == "timed_out"


async def test_none_is_a_failure_where_the_program_says_so(
    client: eruca.AsyncClient, topic: str
) -> None:
    attempts: list[int] = []
    consumer = client.push_consumer(
        topic, start="earliest", retries=eruca.Retries(none_is_failure=True)
    )

    @consumer.on(topic)
    def handle(
        message: eruca.ReceivedMessage, context: eruca.ConsumeContext
    ) -> ConsumeStatus | None:
        attempts.append(message.attempt)
        context.delay_seconds = 0
        return None if message.attempt < 3 else ConsumeStatus.SUCCESS

    await send(client, topic, [0])
    async with consumer:
        await until(lambda: attempts == [1, 2, 3])


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_what_a_handler_cannot_say_is_its_failure(
    client: eruca.AsyncClient, topic: str, ordered: bool, is_async: bool
) -> None:
    consumer = client.push_consumer(
        topic, start="earliest", ordered=ordered, retries=eruca.Retries(retries_max=0)
    )

    def handle(message: eruca.ReceivedMessage, context: eruca.ConsumeContext) -> ConsumeStatus:
        if ordered:
            context.suspend_seconds = "1"  # type: ignore[assignment]
            return ConsumeStatus.SUSPEND
        context.ack_index = "0"  # type: ignore[assignment]
        return ConsumeStatus.SUCCESS

    async def on_loop(
        message: eruca.ReceivedMessage, context: eruca.ConsumeContext
    ) -> ConsumeStatus:
        return handle(message, context)

    consumer.subscribe(topic, handler=on_loop if is_async else handle)
    await send(client, topic, [0])
    async with consumer:
        await until_told(lambda: is_committed(client, topic, 1))

    [letter] = await dead_letters(client, topic)
    assert ("suspend_seconds: expected" if ordered else "ack_index: expected") in str(
        letter["last_error"]
    )
