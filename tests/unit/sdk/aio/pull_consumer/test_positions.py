"""The pull consumer without a network: where it reads on."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.core.consuming.pull_positions import StartPosition
from support.pulled_queues import Queues, texts, until_filled
from support.scripted_transport import Request, transport_of
from support.waiting import until

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
