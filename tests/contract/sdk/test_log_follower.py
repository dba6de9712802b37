"""Following the log of a real broker: all of it, from anywhere, as it grows."""

from __future__ import annotations

import asyncio

import pytest

import eruca
from eruca.contract.errors import BrokerNotFoundError, RecordNotFoundError
from eruca.contract.names import EVENTS_TOPIC
from support.in_process_cluster import InProcessCluster

pytestmark = pytest.mark.anyio


async def send(client: eruca.AsyncClient, topic: str, count: int) -> eruca.SendResults:
    queue = eruca.MessageQueue(topic, "broker-a", 0)
    async with client.producer() as producer:
        return await producer.send_many(
            [eruca.Message(topic, str(n)) for n in range(count)], queue=queue
        )


async def test_the_whole_log_is_read_system_topics_included(
    client: eruca.AsyncClient, topic: str
) -> None:
    sent = await send(client, topic, 100)
    status = await client.admin.broker_status("broker-a")

    topics, offset = [], status.log.min_offset
    async with client.log_follower("broker-a") as follower:
        while offset < status.log.max_offset:
            record = await anext(follower)
            assert record.log_offset == offset
            offset = record.next_offset
            topics.append(record.decode().topic)

    assert topics.count(topic) == len(sent)
    assert EVENTS_TOPIC in topics


async def test_following_begins_at_any_record_and_goes_on_there(
    client: eruca.AsyncClient, topic: str
) -> None:
    sent = await send(client, topic, 10)

    async with client.log_follower("broker-a", from_offset=sent[4].log_offset) as first:
        bodies = [(await anext(first)).decode().body for _ in range(3)]
        following = first.next_offset
    async with client.log_follower("broker-a", from_offset=following or 0) as second:
        bodies += [record.decode().body for record in await second.read()]

    assert bodies == [b"4", b"5", b"6", b"7", b"8", b"9"]


async def test_what_is_written_later_is_waited_for(client: eruca.AsyncClient, topic: str) -> None:
    async with client.log_follower("broker-a", from_offset="latest") as follower:
        assert await follower.read() == []
        assert follower.end_offset == follower.next_offset
        waiting = asyncio.create_task(anext(follower))
        await asyncio.sleep(0)
        await send(client, topic, 1)

        assert (await waiting).decode().body == b"0"


async def test_an_offset_where_no_record_starts_is_an_error(client: eruca.AsyncClient) -> None:
    async with client.log_follower("broker-a", from_offset=1) as follower:
        with pytest.raises(RecordNotFoundError):
            await anext(follower)


async def test_a_broker_that_is_not_there_is_an_error(client: eruca.AsyncClient) -> None:
    async with client.log_follower("broker-z") as follower:
        with pytest.raises(BrokerNotFoundError, match="broker-z"):
            await anext(follower)


async def test_a_closed_follower_ends(client: eruca.AsyncClient, cluster: InProcessCluster) -> None:
    follower = client.log_follower("broker-a", from_offset="latest")
    await follower.close()

    assert [record async for record in follower] == []
    with pytest.raises(eruca.ClosedError):
        await follower.read()


@pytest.mark.parametrize("from_offset", [-1, "middle"])
async def test_places_that_make_no_sense_are_refused(
    client: eruca.AsyncClient, from_offset: object
) -> None:
    with pytest.raises(eruca.ValidationError, match="from_offset"):
        client.log_follower("broker-a", from_offset=from_offset)  # type: ignore[arg-type]


async def test_blocks_follow_each_other_without_a_gap(
    client: eruca.AsyncClient, topic: str
) -> None:
    sent = await send(client, topic, 50)
    async with client.log_follower("broker-a", from_offset=sent[0].log_offset) as follower:
        first = await follower.read_block(bytes_max=1)
        rest = await follower.read_block()

        assert first.from_offset == sent[0].log_offset
        assert [record.decode().body for record in first.records()] == [b"0"]
        assert rest.from_offset == first.next_offset == sent[1].log_offset
        assert [record.log_offset for record in rest.records()] == [r.log_offset for r in sent[1:]]
        assert rest.next_offset == rest.end_offset == follower.next_offset == follower.end_offset
        at_the_end = await follower.read_block()

    assert not at_the_end.data
    assert at_the_end.next_offset == rest.next_offset
