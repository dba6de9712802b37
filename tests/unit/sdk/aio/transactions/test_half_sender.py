"""Retries of a half message: at another broker, or only where it may be stored already."""

from __future__ import annotations

import asyncio

import pytest

import eruca
from eruca.aio.http.transport import ConnectTimeoutError, NotConnectedError
from eruca.contract.errors import (
    DiskFullError,
    ErucaError,
    InternalError,
    NotReadyError,
    OverloadedError,
    StoreFailedError,
    TimeoutExpiredError,
    TransactionIdInUseError,
    TransportError,
    UnavailableError,
)
from support.loop_clock import moved_clock
from support.scripted_transactions import ScriptedBrokers, transaction_client
from support.waiting import until

pytestmark = pytest.mark.anyio

NOT_STORED = [
    NotConnectedError("refused"),
    ConnectTimeoutError("no connection"),
    OverloadedError("full"),
    NotReadyError("starting"),
    DiskFullError("full"),
]
MAY_BE_STORED = [
    TransportError("the connection ended"),
    TimeoutExpiredError("no answer"),
    StoreFailedError("the disk failed"),
    InternalError("a defect"),
    UnavailableError("a proxy's 502"),
]


def kind_of(error: ErucaError) -> str:
    return type(error).__name__


async def begin(client: eruca.AsyncClient, message: eruca.Message, **settings: int) -> str:
    """Run a transaction and return the broker that has it."""
    async with client.transaction_producer("group", **settings) as producer:  # type: ignore[arg-type]
        result = await producer.send_in_transaction(message, lambda _half: "commit")
    assert result.is_decided
    return result.half.queue.broker_name


@pytest.mark.parametrize("error", NOT_STORED, ids=kind_of)
async def test_another_broker_is_tried_where_nothing_was_stored(error: ErucaError) -> None:
    brokers = ScriptedBrokers()
    brokers.refuse(error)
    client, hot = transaction_client(brokers)
    async with client:
        chosen = await begin(client, eruca.Message("orders", "x"))

    first, second, *_ = hot.requests
    assert first.url != second.url == f"http://{chosen}"
    assert [url for url, _ in brokers.begun] == [second.url]


@pytest.mark.parametrize("error", MAY_BE_STORED, ids=kind_of)
@pytest.mark.parametrize("is_stored", [True, False])
async def test_only_the_same_broker_is_tried_where_it_may_be_stored(
    error: ErucaError, *, is_stored: bool
) -> None:
    brokers = ScriptedBrokers()
    errors = [error] * 4  # more than the retries, which do not count here
    brokers.lose_answers(*errors) if is_stored else brokers.refuse(*errors)
    client, hot = transaction_client(brokers, "a", "b", "c")
    async with client:
        chosen = await begin(client, eruca.Message("orders", "x"))

    assert {request.url for request in hot.requests} == {f"http://{chosen}"}
    assert len({request.body for request in hot.requests[:5]}) == 1
    assert len(brokers.begun) == 1


async def test_once_it_may_be_stored_a_clear_refusal_does_not_send_it_elsewhere() -> None:
    brokers = ScriptedBrokers()
    brokers.lose_answers(TransportError("the connection ended"))
    brokers.refuse(NotConnectedError("refused"), OverloadedError("full"), NotReadyError("starting"))
    client, hot = transaction_client(brokers)
    async with client:
        chosen = await begin(client, eruca.Message("orders", "x"))

    assert {request.url for request in hot.requests} == {f"http://{chosen}"}


async def test_local_code_does_not_run_without_a_stored_half_message() -> None:
    brokers = ScriptedBrokers()
    brokers.refuse(*[OverloadedError("full")] * 3)
    client, hot = transaction_client(brokers)
    ran: list[object] = []
    async with client, client.transaction_producer("group") as producer:
        with pytest.raises(eruca.SendFailedError, match="3 attempts failed, it is not stored"):
            await producer.send_in_transaction(
                eruca.Message("orders", "x"), lambda half: ran.append(half)
            )
        brokers.refuse(eruca.ValidationError("no"))
        transaction = producer.transaction(eruca.Message("orders", "x"))
        with pytest.raises(eruca.ValidationError):
            async with transaction:
                ran.append("the block")

    assert ran == []
    assert len(hot.requests) == 4


async def test_without_retries_there_is_one_attempt() -> None:
    brokers = ScriptedBrokers()
    brokers.lose_answers(TransportError("the connection ended"))
    client, hot = transaction_client(brokers)
    async with client:
        with pytest.raises(eruca.SendFailedError, match="it may be stored"):
            await begin(client, eruca.Message("orders", "x"), retries_max=0)

    assert len(hot.requests) == 1


async def test_the_deadline_ends_what_only_time_could_help() -> None:
    brokers = ScriptedBrokers()
    brokers.refuse(*[TransportError("the connection ended")] * 100)
    client, hot = transaction_client(brokers)
    async with (
        client,
        client.transaction_producer("group", retries_max=1, send_timeout_seconds=60) as producer,
    ):
        with moved_clock() as clock:
            sending = asyncio.create_task(
                producer.send_in_transaction(eruca.Message("orders", "x"), lambda _: "commit")
            )
            await until(lambda: len(hot.requests) > 2)
            clock.advance(70)
            with pytest.raises(eruca.SendFailedError, match="it may be stored") as caught:
                await sending

    # The error also says that the deadline passed before a further one could be sent.
    sent = [
        error for _, error in caught.value.attempts if not isinstance(error, TimeoutExpiredError)
    ]
    assert len(sent) == len(hot.requests) > 2


async def test_a_refusal_of_the_message_is_final() -> None:
    brokers = ScriptedBrokers()
    brokers.refuse(TransactionIdInUseError("another message has it"))
    client, hot = transaction_client(brokers)
    async with client:
        with pytest.raises(TransactionIdInUseError):
            await begin(client, eruca.Message("orders", "x", message_id="mine"))

    assert len(hot.requests) == 1


async def test_messages_go_to_all_brokers_in_turn_and_to_a_queue_if_that_is_wanted() -> None:
    brokers = ScriptedBrokers()
    client, _ = transaction_client(brokers)
    async with client, client.transaction_producer("group") as producer:
        anywhere = [await _queue_of(producer, eruca.Message("orders", "x")) for _ in range(4)]
        keyed = [
            await _queue_of(producer, eruca.Message("orders", "x", sharding_key="k"))
            for _ in range(3)
        ]
        named = eruca.MessageQueue("orders", "b", 1)
        result = await producer.send_in_transaction(
            eruca.Message("orders", "x"), lambda _: "commit", queue=named
        )

    assert len(set(anywhere)) == 4
    assert len(set(keyed)) == 1
    assert result.half.queue == named


async def test_a_broker_that_failed_is_left_alone_for_a_time() -> None:
    brokers = ScriptedBrokers()
    brokers.refuse(NotConnectedError("refused"))
    client, hot = transaction_client(brokers)
    async with client, client.transaction_producer("group", latency_fault=True) as producer:
        for _ in range(6):
            await _queue_of(producer, eruca.Message("orders", "x"))
        health = {broker.broker_name: broker.is_reachable for broker in producer.broker_health()}

    failed = hot.requests[0].url
    assert [request.url for request in hot.requests].count(failed) == 1
    assert health[failed.removeprefix("http://")] is False


async def _queue_of(
    producer: eruca.AsyncTransactionProducer, message: eruca.Message
) -> eruca.MessageQueue:
    result = await producer.send_in_transaction(message, lambda _half: "commit")
    return result.half.queue
