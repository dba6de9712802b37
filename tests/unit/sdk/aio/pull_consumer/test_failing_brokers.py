"""The pull consumer without a network: brokers that fail, and come back."""

from __future__ import annotations

import asyncio
import sys

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.aio.pulling import broker_fetcher, queues_aside
from eruca.contract.errors import ErucaError, QueueNotFoundError
from support.pulled_queues import Queues, texts
from support.scripted_transport import Request, ScriptedTransport, transport_of
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio


async def test_one_broker_that_fails_does_not_hold_up_the_other(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    queues.errors["a"] = eruca.OverloadedError("busy")
    queues.store(0, "from b", broker="b")

    async with client.pull_consumer(topics="orders") as consumer:
        assert texts(await consumer.poll(wait_seconds=20)) == ["from b"]
        assert await consumer.poll(wait_seconds=0.05) == []
        assert isinstance(consumer.failures["a"], eruca.OverloadedError)

        del queues.errors["a"]
        queues.store(0, "from a", broker="a")
        assert texts(await consumer.poll(wait_seconds=20)) == ["from a"]
        assert consumer.failures == {}


async def test_a_broker_that_is_back_counts_as_such_before_it_has_messages(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    queues.errors = {name: eruca.OverloadedError("busy") for name in "ab"}
    async with client.pull_consumer(topics="orders") as consumer:
        await consumer.assignment()
        await until(lambda: consumer.failures.keys() == {"a", "b"})

        queues.errors.clear()

        await until(lambda: not consumer.failures)
        assert await consumer.poll(wait_seconds=0.01) == []


async def test_a_broker_that_was_away_for_hours_is_still_asked_whether_it_is_back(
    client: eruca.AsyncClient,
    queues: Queues,
    hot: ScriptedTransport,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_fetcher, "PAUSE_SECONDS_MAX", 0.0)
    queues.brokers = ["a"]
    queues.errors["a"] = eruca.OverloadedError("busy")
    async with client.pull_consumer(topics="orders") as consumer:
        await consumer.assignment()
        await until(lambda: len(hot.requests) > 1_100)  # 2.0**1024 is no float

        queues.errors.clear()

        await until(lambda: not consumer.failures)


async def test_threads_may_ask_for_failures_while_brokers_come_and_go(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    many = [f"b{number}" for number in range(20)]
    is_over = False

    def ask() -> int:
        """Ask again and again, as a thread that has the sync consumer does."""
        count = 0
        while not is_over:
            assert consumer.failures == {}
            count += 1
        return count

    async def count_queues() -> int:
        return len(await consumer.assignment())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns in the middle of what each does
    try:
        async with client.pull_consumer(topics="orders") as consumer:
            asking = asyncio.create_task(asyncio.to_thread(ask))
            for _ in range(4):
                for count in (20, 1):
                    queues.change_route(*many[:count])
                    await until_told(count_queues, (2 * count).__eq__)
            is_over = True
            assert await asking > 0
    finally:
        is_over = True
        sys.setswitchinterval(interval)


async def test_without_a_master_a_queue_whose_start_is_unknown_holds_up_no_other(
    client: eruca.AsyncClient, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start is the word of a master; the others are read on at another replica."""
    monkeypatch.setattr(queues_aside, "LOOK_SECONDS", 0.01)
    queues.change_route("a")
    queues.store(0, "0", "1")
    queues.marks = {"eruca-confirmed": "1"}
    known, fresh = (eruca.MessageQueue("orders", "a", queue_id) for queue_id in range(2))

    async with client.pull_consumer(queues=[known, fresh], start="earliest") as consumer:
        await consumer.seek(known, 0)
        assert texts(await consumer.poll(wait_seconds=20)) == ["0", "1"]
        queues.store(0, "2")
        assert texts(await consumer.poll(wait_seconds=20)) == ["2"]

        queues.marks = {}
        queues.store(1, "3")
        assert texts(await consumer.poll(wait_seconds=20)) == ["3"]


async def test_a_start_that_is_long_in_coming_holds_up_no_queue_whose_position_is_known(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    queues.change_route("a")
    queues.store(0, "0")
    queues.store(1, "1")
    is_told = asyncio.Event()

    async def slow(request: Request) -> HttpResponse:
        if request.target.endswith("/queues"):
            await is_told.wait()
        return await queues.rest(request)

    transport_of(client).answer = slow
    known, fresh = (eruca.MessageQueue("orders", "a", queue_id) for queue_id in range(2))

    async with client.pull_consumer(queues=[known, fresh], start="earliest") as consumer:
        await consumer.seek(known, 0)
        assert texts(await consumer.poll(wait_seconds=20)) == ["0"]
        is_told.set()
        assert texts(await consumer.poll(wait_seconds=20)) == ["1"]


async def test_if_all_fail_the_poll_does(client: eruca.AsyncClient, queues: Queues) -> None:
    queues.errors = {name: eruca.OverloadedError(f"{name} is busy") for name in "ab"}

    async with client.pull_consumer(topics="orders") as consumer:
        with pytest.raises(eruca.OverloadedError, match="is busy"):
            await consumer.poll(wait_seconds=0.05)


@pytest.mark.parametrize(
    "error", [eruca.PermissionDeniedError("not yours"), QueueNotFoundError("no queue")]
)
async def test_a_refusal_that_is_meant_is_raised_though_another_broker_is_well(
    client: eruca.AsyncClient, queues: Queues, error: ErucaError
) -> None:
    queues.errors["a"] = error

    async with client.pull_consumer(topics="orders") as consumer:
        with pytest.raises(type(error)):
            await consumer.poll(wait_seconds=20)


async def test_messages_fetched_before_a_gap_are_handed_out_before_the_error(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    queues.store(0, *map(str, range(10)))

    async with client.pull_consumer(
        queues=[eruca.MessageQueue("orders", "a", 0)], prefetch_count_max=4
    ) as consumer:
        assert texts(await consumer.poll(count_max=1, wait_seconds=20)) == ["0"]
        await until(lambda: consumer._assignment.flows[0].count == 3)
        queues.min_offset = 8  # retention
        seen: list[str] = []

        async def read_to_the_gap() -> None:
            while True:
                seen.extend(texts(await consumer.poll(count_max=1, wait_seconds=20)))

        with pytest.raises(eruca.OffsetOutOfRangeError, match="now begins at 8"):
            await read_to_the_gap()
        await consumer.seek_to_beginning()
        rest = texts(await consumer.poll(wait_seconds=20))

    assert seen[:3] == ["1", "2", "3"]
    assert rest == ["8", "9"]
