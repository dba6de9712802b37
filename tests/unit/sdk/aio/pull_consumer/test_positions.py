"""The pull consumer without a network: where it reads on."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.core.consuming.pull_positions import OutOfRangePolicy, StartPosition
from support.pulled_queues import Queues, texts, until_filled
from support.scripted_transport import Request, transport_of
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio


async def test_a_position_is_an_error_where_its_broker_does_not_tell(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    rest = transport_of(client)

    async def refusing(request: Request) -> HttpResponse:
        if request.url == "http://a":
            raise eruca.TransportError("cut")
        return await queues.rest(request)

    rest.answer = refusing
    async with client.pull_consumer(topics="orders") as consumer:
        assert await consumer.position(eruca.MessageQueue("orders", "b", 0)) == 0
        with pytest.raises(eruca.TransportError):
            await consumer.position(eruca.MessageQueue("orders", "a", 0))


@pytest.mark.parametrize("handed_out", [0, 1, 3])
async def test_queues_that_go_and_come_back_are_read_on_where_they_were_left(
    client: eruca.AsyncClient, queues: Queues, handed_out: int
) -> None:
    """As all queues of a broker do when it restarts; the iteration before was left halfway."""
    queues.store(0, *map(str, range(5)), broker="b")

    async with client.pull_consumer(topics="orders") as consumer:
        await until_filled(consumer, 5)
        seen = [(await anext(consumer)).text() for _ in range(handed_out)]
        queues.change_route("a")
        await until(lambda: consumer._assignment._is_stale)
        assert await consumer.poll(wait_seconds=0.01) == []
        assert {queue.broker_name for queue in await consumer.assignment()} == {"a"}

        queues.change_route("a", "b")
        while len(seen) < 5:
            seen += texts(await consumer.poll(wait_seconds=20))

    assert seen == [str(number) for number in range(5)]


@pytest.mark.parametrize(
    ("start", "seen"),
    [("earliest", ["0", "1", "2"]), ("latest", ["2"]), (datetime(2026, 11, 21, tzinfo=UTC), ["2"])],
)
async def test_of_a_broker_that_was_away_is_read_what_would_have_been_had_it_been_there(
    client: eruca.AsyncClient,
    queues: Queues,
    start: StartPosition | datetime,
    seen: list[str],
) -> None:
    queues.change_route("a")
    queues.old_count = 2
    queues.store(0, "0", "1", broker="b")

    async with client.pull_consumer(topics="orders", start=start) as consumer:
        assert await consumer.poll(wait_seconds=0.01) == []
        queues.store(0, "2", broker="b")
        queues.change_route("a", "b")
        received: list[str] = []
        while len(received) < len(seen):
            received += texts(await consumer.poll(wait_seconds=20))

    assert received == seen


@pytest.mark.parametrize("old_count", [0, 1])
async def test_only_a_new_queue_is_read_without_the_offset_that_its_consumer_insists_on(
    client: eruca.AsyncClient, queues: Queues, old_count: int
) -> None:
    queues.change_route()
    queues.old_count = old_count
    queues.store(0, "x", broker="b")

    async with client.pull_consumer("g", topics="orders", start="committed") as consumer:
        assert await consumer.poll(wait_seconds=0.01) == []
        queues.change_route("b")
        if old_count:
            with pytest.raises(eruca.NoCommittedOffsetError):
                await consumer.poll(wait_seconds=20)
        else:
            assert texts(await consumer.poll(wait_seconds=20)) == ["x"]


@pytest.mark.parametrize("header", ["eruca-confirmed", "eruca-stale"])
@pytest.mark.parametrize("start", ["earliest", "latest", datetime(2026, 11, 21, tzinfo=UTC)])
async def test_a_start_is_the_word_of_a_master(
    client: eruca.AsyncClient, queues: Queues, header: str, start: StartPosition | datetime
) -> None:
    """Another replica may have less at either end, and not know the group's offsets yet."""
    queues.change_route("a")
    queues.store(0, "0", "1", "2")
    queues.marks, queues.min_offset = {header: "1"}, 2
    queue = eruca.MessageQueue("orders", "a", 0)

    async with client.pull_consumer("billing", queues=[queue], start=start) as consumer:
        with pytest.raises(eruca.NotMasterForSureError):
            await consumer.position(queue)
        with pytest.raises(eruca.NotMasterForSureError):
            await consumer.committed(queue)
        queues.marks, queues.min_offset = {}, 0
        begin = 3 if start == "latest" else 0

        async def known() -> int | None:
            with suppress(eruca.ErucaError):
                return await consumer.position(queue)
            return None

        assert await until_told(known, lambda position: position is not None) == begin


@pytest.mark.parametrize("policy", ["earliest", "latest", "nearest", "error"])
@pytest.mark.parametrize("header", ["eruca-confirmed", "eruca-stale"])
async def test_no_message_is_passed_by_the_word_of_another_replica(
    client: eruca.AsyncClient, queues: Queues, policy: OutOfRangePolicy, header: str
) -> None:
    """Brokers of earlier versions say there that messages are deleted."""
    queues.change_route("a")
    queues.store(0, *map(str, range(5)))
    queue = eruca.MessageQueue("orders", "a", 0)

    async with client.pull_consumer(
        queues=[queue], start="earliest", on_offset_out_of_range=policy, prefetch_count_max=1
    ) as consumer:
        seen = texts(await consumer.poll(count_max=1, wait_seconds=20))
        await until(lambda: consumer._assignment.flows[0].count == 1)
        queues.marks, queues.min_offset = {header: "1"}, 4
        seen += texts(await consumer.poll(count_max=1, wait_seconds=20))
        with pytest.raises(eruca.NotMasterForSureError):
            await consumer.poll(count_max=1, wait_seconds=20)
        queues.marks, queues.min_offset = {}, 0
        while len(seen) < 5:
            seen += texts(await consumer.poll(wait_seconds=20))

    assert seen == ["0", "1", "2", "3", "4"]
