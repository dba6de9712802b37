"""Decisions that nobody awaits: delivered soon, together, whatever happens on the way."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest

import eruca
from eruca.aio.transactions import unawaited
from eruca.contract.errors import ErucaError, NotFoundError, OverloadedError, TransportError
from support.scripted_transactions import ScriptedBrokers, transaction_client
from support.scripted_transport import Request
from support.transaction_producers import MESSAGE, decisions
from support.waiting import until

pytestmark = pytest.mark.anyio


async def commit(_half: eruca.HalfMessage) -> eruca.Verdict:
    return "commit"


def shared_counts(requests: list[Request]) -> list[int]:
    """Return the number of decisions in each request for several."""
    return [
        len(msgspec.json.decode(request.body)["transactions"])
        for request in requests
        if request.target.endswith(":decide")
    ]


async def test_a_decision_is_delivered_after_the_call_and_settled() -> None:
    brokers = ScriptedBrokers()
    client, hot = transaction_client(brokers)
    async with client, client.transaction_producer("group", await_decisions=False) as producer:
        result = await producer.send_in_transaction(MESSAGE, commit)

        assert (result.verdict, result.is_decided) == ("commit", False)
        assert decisions(hot.requests) == []
        assert producer._book.answer(result.transaction_id) == "commit"
        await until(lambda: producer._book.answer(result.transaction_id) is None)

    assert brokers.decided == {result.transaction_id: "commit"}


async def test_those_of_a_short_time_share_a_request() -> None:
    brokers = ScriptedBrokers()
    client, hot = transaction_client(brokers, "a")
    async with client, client.transaction_producer("group", await_decisions=False) as producer:
        for _ in range(5):
            await producer.send_in_transaction(MESSAGE, commit)
        assert decisions(hot.requests) == []

    assert shared_counts(hot.requests) == [5]
    assert len(brokers.decided) == 5


async def test_closing_delivers_what_lingers_and_later_decisions_are_awaited() -> None:
    brokers = ScriptedBrokers()
    client, _ = transaction_client(brokers)
    async with client:
        producer = client.transaction_producer("group", await_decisions=False)
        early = await producer.send_in_transaction(MESSAGE, commit)
        async with producer.transaction(MESSAGE) as late:
            await producer.close()
            assert brokers.decided == {early.transaction_id: "commit"}

        assert late.result.is_decided


async def test_a_block_that_fails_after_its_decision_is_not_called_left() -> None:
    client, _ = transaction_client(ScriptedBrokers())
    async with client, client.transaction_producer("group", await_decisions=False) as producer:
        with pytest.raises(ZeroDivisionError) as caught:
            async with producer.transaction(MESSAGE, on_error="rollback"):
                raise ZeroDivisionError

    assert not hasattr(caught.value, "__notes__")


async def test_the_same_decision_is_sent_once_and_the_opposite_is_refused() -> None:
    client, hot = transaction_client(ScriptedBrokers(), "a")
    async with client, client.transaction_producer("group", await_decisions=False) as producer:
        async with producer.transaction(MESSAGE) as transaction:
            await transaction.commit()
        await transaction.commit()
        with pytest.raises(eruca.ValidationError, match="cannot be concluded with rollback"):
            await transaction.rollback()

    assert shared_counts(hot.requests) == [1]


@pytest.mark.parametrize(
    "faults",
    [
        [TransportError("gone")],
        [TransportError("gone"), OverloadedError("full")],
        [NotFoundError("an older broker has no request for several")],
    ],
)
async def test_a_request_that_fails_is_repeated_for_each(faults: list[ErucaError]) -> None:
    brokers = ScriptedBrokers()
    client, _ = transaction_client(brokers, "a")
    async with client, client.transaction_producer("group", await_decisions=False) as producer:
        for _ in range(3):
            await producer.send_in_transaction(MESSAGE, commit)
        brokers.refuse(*faults)

    assert list(brokers.decided.values()) == ["commit"] * 3


async def test_a_refusal_is_logged_and_settles(caplog: pytest.LogCaptureFixture) -> None:
    brokers = ScriptedBrokers()
    client, _ = transaction_client(brokers, "a")
    async with client, client.transaction_producer("group", await_decisions=False) as producer:
        refused = await producer.send_in_transaction(MESSAGE, commit)
        stored = await producer.send_in_transaction(MESSAGE, commit)
        brokers.decided[refused.transaction_id] = "rollback"
        with caplog.at_level(logging.WARNING, logger=unawaited.__name__):
            await producer.close()

        assert producer._book.answer(refused.transaction_id) is None
    assert brokers.decided[stored.transaction_id] == "commit"
    assert [record.message for record in caplog.records if refused.transaction_id in record.message]


async def test_what_cannot_be_delivered_is_left_and_a_check_gets_it() -> None:
    brokers = ScriptedBrokers()
    client, _ = transaction_client(brokers, "a")
    async with client:
        producer = client.transaction_producer(
            "group", await_decisions=False, decision_timeout_seconds=0.1
        )
        result = await producer.send_in_transaction(MESSAGE, commit)
        brokers.refuse(*[TransportError("gone")] * 100)
        await producer.close()

        assert producer._book.answer(result.transaction_id) == "commit"


async def test_callers_wait_while_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unawaited, "COUNT_MAX", 2)
    monkeypatch.setattr(unawaited, "LINGER_SECONDS", 60)
    brokers = ScriptedBrokers()
    client, _ = transaction_client(brokers, "a")
    async with client:
        producer = client.transaction_producer("group", await_decisions=False)
        sends = [
            asyncio.create_task(producer.send_in_transaction(MESSAGE, commit)) for _ in range(3)
        ]
        await until(lambda: sum(send.done() for send in sends) == 2)
        assert not brokers.decided

        await producer.close()
        await asyncio.gather(*sends)

        await until(lambda: len(brokers.decided) == 3)


async def test_a_client_that_is_closed_at_once_leaves_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    brokers = ScriptedBrokers()
    client, _ = transaction_client(brokers)
    producer = client.transaction_producer("group", await_decisions=False)
    result = await producer.send_in_transaction(MESSAGE, commit)

    await client.close(drain=False)

    assert not brokers.decided
    assert producer._book.answer(result.transaction_id) == "commit"
    assert "left to the checker" in caplog.text
