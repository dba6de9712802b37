"""The producer without a network: a full buffer, and closing."""

from __future__ import annotations

import asyncio

import pytest

import eruca
from support.sending_clients import Gate, client_of, message, storing
from support.waiting import stays, until

pytestmark = pytest.mark.anyio


# Back-pressure.


async def test_sending_waits_while_the_buffer_is_full() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with client, client.producer(buffer_bytes_max=1_000) as producer:
        first = await producer.submit(message("x" * 700))
        await until(lambda: gate.waiting)
        waiting = [asyncio.create_task(producer.submit(message("y" * 700))) for _ in range(2)]
        await stays(lambda: not any(task.done() for task in waiting))

        gate.open()
        await first
        await until(lambda: waiting[0].done())
        assert not waiting[1].done()

        await until(lambda: gate.waiting)
        gate.open()
        await until(lambda: waiting[1].done())
        await until(lambda: gate.waiting)
        gate.open()


async def test_who_gives_up_waiting_for_room_does_not_hold_up_others() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with client, client.producer(buffer_bytes_max=1_000) as producer:
        await producer.submit(message("x" * 700))
        await until(lambda: gate.waiting)
        impatient, patient = (
            asyncio.create_task(producer.submit(message("y" * 700))) for _ in range(2)
        )
        await asyncio.sleep(0)
        impatient.cancel()
        gate.open()
        await until(lambda: patient.done())
        await until(lambda: gate.waiting)
        gate.open()

    assert impatient.cancelled()


async def test_closing_refuses_those_who_wait_for_room() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with client:
        producer = client.producer(buffer_bytes_max=1_000)
        first = await producer.submit(message("x" * 700))
        waiting = asyncio.create_task(producer.submit(message("y" * 700)))
        await until(lambda: gate.waiting)

        await producer.close(drain=False)

        for sent in (first, waiting):
            with pytest.raises(eruca.ClosedError):
                await sent


async def test_of_many_that_closing_cuts_short_the_error_tells_which_were_stored() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with client:
        producer = client.producer(buffer_bytes_max=1_000, batching=eruca.Batching(count_max=1))
        sending = asyncio.create_task(
            producer.send_many([message(text * 700) for text in ("x", "y")])
        )
        await until(lambda: gate.waiting)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        gate.open()

        with pytest.raises(eruca.PartialSendError) as raised:
            await sending
        await closing

    stored, refused = raised.value.outcomes
    assert isinstance(stored, eruca.SendResult)
    assert isinstance(refused, eruca.ClosedError)


async def test_of_what_is_under_way_closing_does_not_claim_that_it_was_not_stored() -> None:
    gate = Gate()
    client, _ = client_of(gate, "a", queue_count=1)
    async with client:
        producer = client.producer(batching=eruca.Batching(count_max=1, in_flight_max=1))
        under_way, waiting = [await producer.submit(message(text)) for text in ("x", "y")]
        await until(lambda: gate.waiting)

        await producer.close(drain=False)

        with pytest.raises(eruca.ClosedError, match="may have been stored"):
            await under_way
        with pytest.raises(eruca.ClosedError, match="before the message was sent"):
            await waiting


# Routes.


@pytest.mark.parametrize("sharding_key", [None, "order-7"])
@pytest.mark.parametrize("is_many", [False, True])
def test_another_event_loop_is_refused(*, sharding_key: str | None, is_many: bool) -> None:
    client, _ = client_of(storing)
    producer = client.producer()

    async def use() -> None:
        one = eruca.Message("orders", "x", sharding_key=sharding_key)
        async with asyncio.timeout(20):
            await (producer.send_many([one]) if is_many else producer.send(one))

    asyncio.run(use())
    for _ in range(2):
        with pytest.raises(eruca.ClosedError, match="another event loop"):
            asyncio.run(use())
