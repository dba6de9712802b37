"""Transactions of local code: what it returns or raises decides, or leaves it to the checker."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest

import eruca
from support.scripted_transactions import ScriptedBrokers, transaction_client
from support.transaction_producers import MESSAGE, decisions
from support.waiting import until

pytestmark = pytest.mark.anyio


# send_in_transaction


@pytest.mark.parametrize("verdict", ["commit", "rollback"])
async def test_local_code_decides(verdict: eruca.Verdict) -> None:
    brokers = ScriptedBrokers()
    client, _ = transaction_client(brokers)
    seen: list[eruca.HalfMessage] = []

    async def execute(half: eruca.HalfMessage) -> eruca.Verdict:
        seen.append(half)
        assert [transaction_id for _, transaction_id in brokers.begun] == [half.transaction_id]
        return verdict

    async with client, client.transaction_producer("group") as producer:
        result = await producer.send_in_transaction(MESSAGE, execute, check_immunity_seconds=20)

    assert [result.half] == seen
    assert result.half.message is MESSAGE
    assert (result.verdict, result.is_decided) == (verdict, True)
    assert result.decision is not None
    assert result.decision.outcome == verdict
    [request] = brokers.begun.values()
    assert (request["producer_group"], request["check_immunity_seconds"]) == ("group", 20)
    assert request["message"]["keys"] == ["order-7"]
    assert request["message"]["delay_seconds"] == 60


@pytest.mark.parametrize("verdict", ["unknown", None])
async def test_local_code_that_knows_nothing_leaves_it_to_the_checker(verdict: Any) -> None:  # noqa: ANN401
    client, hot = transaction_client(ScriptedBrokers())
    async with client, client.transaction_producer("group") as producer:
        result = await producer.send_in_transaction(MESSAGE, lambda _half: verdict)

    assert (result.verdict, result.decision) == ("unknown", None)
    assert decisions(hot.requests) == []


async def test_a_wrong_answer_of_local_code_decides_nothing() -> None:
    client, hot = transaction_client(ScriptedBrokers())
    async with client, client.transaction_producer("group") as producer:
        with pytest.raises(
            eruca.ValidationError, match="expected a verdict on a transaction, found True"
        ):
            await producer.send_in_transaction(MESSAGE, lambda _half: True)  # type: ignore[arg-type,return-value]

    assert decisions(hot.requests) == []


async def test_an_error_of_local_code_is_raised_and_leaves_it_to_the_checker() -> None:
    client, hot = transaction_client(ScriptedBrokers())
    async with client, client.transaction_producer("group") as producer:
        with pytest.raises(ZeroDivisionError) as caught:
            await producer.send_in_transaction(MESSAGE, lambda _half: 1 / 0)  # type: ignore[arg-type,return-value]

    assert decisions(hot.requests) == []
    assert "left to the checker" in caught.value.__notes__[0]


async def test_an_error_of_local_code_rolls_back_if_that_is_asked_for() -> None:
    client, hot = transaction_client(ScriptedBrokers())
    async with client, client.transaction_producer("group") as producer:
        with pytest.raises(ZeroDivisionError):
            await producer.send_in_transaction(
                MESSAGE,
                lambda _half: 1 / 0,  # type: ignore[arg-type,return-value]
                on_error="rollback",
            )

    assert decisions(hot.requests) == ["rollback"]
    reason = msgspec.json.decode(hot.requests[-1].body)["reason"]
    assert reason == "ZeroDivisionError: division by zero"


async def test_an_error_that_cannot_be_sent_as_it_is_rolls_back_all_the_same() -> None:
    client, hot = transaction_client(ScriptedBrokers())

    def execute(_half: eruca.HalfMessage) -> eruca.Verdict:
        raise ValueError("field \0 of \ud800")

    async with client, client.transaction_producer("group") as producer:
        with pytest.raises(ValueError, match="field"):
            await producer.send_in_transaction(MESSAGE, execute, on_error="rollback")

    assert decisions(hot.requests) == ["rollback"]
    assert (
        msgspec.json.decode(hot.requests[-1].body)["reason"] == r"ValueError: field \x00 of \ud800"
    )


async def test_plain_local_code_runs_in_a_thread_beside_the_event_loop() -> None:
    client, _ = transaction_client(ScriptedBrokers())
    loop_turned, threads = threading.Event(), []

    def execute(_half: eruca.HalfMessage) -> eruca.Verdict:
        threads.append(threading.current_thread())
        assert loop_turned.wait(20)
        return "commit"

    async with client, client.transaction_producer("group") as producer:
        sending = asyncio.create_task(producer.send_in_transaction(MESSAGE, execute))
        await until(lambda: threads)
        loop_turned.set()
        assert (await sending).is_decided

    assert threads != [threading.current_thread()]


async def test_plain_local_code_that_is_cancelled_ends_and_is_told_first() -> None:
    """A thread cannot be stopped: what it has done is not to be rolled back."""
    client, hot = transaction_client(ScriptedBrokers())
    begun, go_on = threading.Event(), threading.Event()

    def execute(_half: eruca.HalfMessage) -> eruca.Verdict:
        begun.set()
        assert go_on.wait(20)
        return "commit"

    async with client, client.transaction_producer("group") as producer:
        sending = asyncio.create_task(
            producer.send_in_transaction(MESSAGE, execute, on_error="rollback")
        )
        await until(begun.is_set)
        sending.cancel()
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.sleep(0)
        assert not sending.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await sending

    assert decisions(hot.requests) == ["commit"]


async def test_plain_local_code_that_is_cancelled_and_fails_has_failed() -> None:
    client, hot = transaction_client(ScriptedBrokers())
    begun, go_on = threading.Event(), threading.Event()

    def execute(_half: eruca.HalfMessage) -> eruca.Verdict:
        begun.set()
        assert go_on.wait(20)
        raise ZeroDivisionError

    async with client, client.transaction_producer("group") as producer:
        sending = asyncio.create_task(
            producer.send_in_transaction(MESSAGE, execute, on_error="rollback")
        )
        await until(begun.is_set)
        sending.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await sending

    assert decisions(hot.requests) == ["rollback"]


async def test_a_time_limit_around_plain_local_code_is_still_one() -> None:
    client, _ = transaction_client(ScriptedBrokers())
    begun, go_on = threading.Event(), threading.Event()

    def execute(_half: eruca.HalfMessage) -> eruca.Verdict:
        begun.set()
        assert go_on.wait(20)
        return "commit"

    limit = asyncio.timeout(None)

    async def run(producer: eruca.AsyncTransactionProducer) -> None:
        async with limit:
            await producer.send_in_transaction(MESSAGE, execute)

    async with client, client.transaction_producer("group") as producer:
        running = asyncio.create_task(run(producer))
        await until(begun.is_set)
        limit.reschedule(asyncio.get_running_loop().time())
        await until(limit.expired)
        go_on.set()
        with pytest.raises(TimeoutError):
            await running


async def test_async_local_code_that_is_cancelled_has_failed() -> None:
    client, hot = transaction_client(ScriptedBrokers())
    begun = asyncio.Event()

    async def execute(_half: eruca.HalfMessage) -> eruca.Verdict:
        begun.set()
        await asyncio.Event().wait()
        return "commit"

    async with client, client.transaction_producer("group") as producer:
        sending = asyncio.create_task(
            producer.send_in_transaction(MESSAGE, execute, on_error="rollback")
        )
        await begun.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending

    assert decisions(hot.requests) == ["rollback"]
