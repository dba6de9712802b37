"""Broadcasting against real brokers: every member gets everything, and remembers by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

import eruca
from support.push import Gatherer, send
from support.waiting import until

pytestmark = pytest.mark.anyio


def member(
    client: eruca.AsyncClient,
    topic: str,
    gatherer: Gatherer,
    directory: Path,
    *,
    client_id: str = "a",
    tag: str = "*",
    group: str | None = None,
    ordered: bool = False,
    commit_seconds: float = 0.05,
) -> eruca.AsyncPushConsumer:
    consumer = client.push_consumer(
        group or topic,
        message_model="broadcasting",
        client_id=client_id,
        offsets=eruca.Offsets(directory=str(directory), commit_seconds=commit_seconds),
        ordered=ordered,
    )
    consumer.subscribe(topic, tag, gatherer)
    return consumer


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "orderly"])
async def test_every_member_gets_every_message(
    client: eruca.AsyncClient, topic: str, tmp_path: Path, *, ordered: bool
) -> None:
    gatherers = [Gatherer(), Gatherer()]
    first, second = (
        member(client, topic, gatherer, tmp_path, client_id=client_id, ordered=ordered)
        for gatherer, client_id in zip(gatherers, "ab", strict=True)
    )

    async with first, second:
        await until(lambda: all(len(c.assignment) == 4 for c in (first, second)))
        await until_begun(first, second)
        await send(client, topic, range(100))
        for gatherer in gatherers:
            await gatherer.until_count(100)

    for gatherer in gatherers:
        assert sorted(map(int, gatherer.texts)) == list(range(100))
        if ordered:
            for queue in {message.queue for message in gatherer.messages}:
                offsets = [m.queue_offset for m in gatherer.messages if m.queue == queue]
                assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("tags", [("A", "A"), ("A", "B"), ("*", "*")], ids=" ".join)
async def test_every_member_gets_what_its_filter_lets_through(
    client: eruca.AsyncClient, topic: str, tmp_path: Path, tags: tuple[str, str]
) -> None:
    gatherers = [Gatherer(), Gatherer()]
    groups = [topic, topic] if tags[0] == tags[1] else [topic, f"{topic}-other"]
    consumers = [
        member(client, topic, gatherer, tmp_path, client_id=client_id, tag=tag, group=group)
        for gatherer, client_id, tag, group in zip(gatherers, "ab", tags, groups, strict=True)
    ]

    async with consumers[0], consumers[1]:
        await until(lambda: all(len(c.assignment) == 4 for c in consumers))
        await until_begun(*consumers)
        async with client.producer() as producer:
            await producer.send_many(
                [eruca.Message(topic, tag, tag=tag) for tag in "ABC" for _ in range(10)]
            )
        for gatherer, tag in zip(gatherers, tags, strict=True):
            wanted = sorted("ABC" if tag == "*" else tag) * 10
            await gatherer.until_count(len(wanted))

    for gatherer, tag in zip(gatherers, tags, strict=True):
        assert sorted(gatherer.texts) == sorted(("ABC" if tag == "*" else tag) * 10)


async def test_a_member_that_fails_or_goes_concerns_no_other(
    client: eruca.AsyncClient, topic: str, tmp_path: Path
) -> None:
    class Failing(Gatherer):
        async def __call__(self, message: eruca.ReceivedMessage) -> None:
            await super().__call__(message)
            raise ValueError("never mind")

    failing, leaving, staying = Failing(), Gatherer(), Gatherer()
    consumers = [
        member(client, topic, gatherer, tmp_path, client_id=client_id)
        for gatherer, client_id in zip((failing, leaving, staying), "abc", strict=True)
    ]
    async with consumers[0], consumers[2]:
        async with consumers[1]:
            await until(lambda: all(len(c.assignment) == 4 for c in consumers))
            await until_begun(*consumers)
            await send(client, topic, range(10))
            for gatherer in (failing, leaving, staying):
                await gatherer.until_count(10)
        await send(client, topic, range(10, 20))
        for gatherer in (failing, staying):
            await gatherer.until_count(20)

    assert len(leaving.messages) == 10
    assert sorted(map(int, staying.texts)) == list(range(20))


async def test_a_start_that_a_members_offsets_come_before_is_said_once(
    client: eruca.AsyncClient, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def made(start: Literal["earliest"] | None) -> eruca.AsyncPushConsumer:
        consumer = client.push_consumer(
            topic,
            message_model="broadcasting",
            client_id="a",
            offsets=eruca.Offsets(directory=str(tmp_path)),
            start=start,
        )
        consumer.subscribe(topic, "*", Gatherer())
        return consumer

    for start in ("earliest", None):
        async with made("earliest" if start else None) as consumer:
            await until_begun(consumer)
    assert caplog.messages == []

    async with made("earliest") as consumer:
        await until_begun(consumer)

    [warning] = caplog.messages
    assert warning.startswith("start=earliest is ignored: this client has stored offsets in ")


async def until_begun(*consumers: eruca.AsyncPushConsumer) -> None:
    """Wait until it is settled where each begins."""

    def has_begun(consumer: eruca.AsyncPushConsumer) -> bool:
        running = consumer._running
        assert running is not None
        held = running._held.values()
        return bool(held) and all(queue.is_begun for queue in held)

    await until(lambda: all(map(has_begun, consumers)))


async def test_a_member_goes_on_where_it_stopped(
    client: eruca.AsyncClient, topic: str, tmp_path: Path
) -> None:
    before, after = Gatherer(), Gatherer()
    first = member(client, topic, before, tmp_path)
    async with first:
        await until(lambda: len(first.assignment) == 4)
        await until_begun(first)
        await send(client, topic, range(10))
        await before.until_count(10)
    await send(client, topic, range(10, 20))

    async with member(client, topic, after, tmp_path):
        await after.until_count(10)

    assert sorted(map(int, after.texts)) == list(range(10, 20))


async def test_a_member_that_comes_late_gets_what_is_sent_from_then_on(
    client: eruca.AsyncClient, topic: str, tmp_path: Path
) -> None:
    await send(client, topic, range(10))
    gatherer = Gatherer()
    late = member(client, topic, gatherer, tmp_path)

    async with late:
        await until(lambda: len(late.assignment) == 4)
        await until_begun(late)
        await send(client, topic, range(10, 20))
        await gatherer.until_count(10)

    assert sorted(map(int, gatherer.texts)) == list(range(10, 20))


async def test_a_topic_that_is_deleted_holds_up_no_other_and_is_read_again_from_its_beginning(
    client: eruca.AsyncClient, topic: str, tmp_path: Path
) -> None:
    other = f"{topic}-other"
    await client.admin.create_topic(other, queue_count=2)
    gatherer = Gatherer()
    consumer = member(client, topic, gatherer, tmp_path)
    consumer.subscribe(other, handler=gatherer)

    async with consumer:
        await until(lambda: len(consumer.assignment) == 8)
        await until_begun(consumer)
        await send(client, topic, range(40))
        await gatherer.until_count(40)

        await client.admin.delete_topic(topic)
        await send(client, other, range(40, 50))
        await gatherer.until_count(50)

        # As many as before: the offsets alone do not tell that the queues are others.
        await client.admin.create_topic(topic, queue_count=2)
        await send(client, topic, range(50, 90))
        await gatherer.until_count(90)

    assert sorted(map(int, gatherer.texts)) == list(range(90))


async def test_a_topic_that_was_created_again_while_the_member_was_away_is_read_whole(
    client: eruca.AsyncClient, topic: str, tmp_path: Path
) -> None:
    """It holds as many messages, and more, under the offsets that the member has kept."""
    gatherer = Gatherer()
    first = member(client, topic, gatherer, tmp_path)
    async with first:
        await until(lambda: len(first.assignment) == 4)
        await until_begun(first)
        await send(client, topic, range(40))
        await gatherer.until_count(40)
    await client.admin.delete_topic(topic)
    await client.admin.create_topic(topic, queue_count=2)
    await send(client, topic, range(40, 120))

    gatherer = Gatherer()
    async with member(client, topic, gatherer, tmp_path):
        await gatherer.until_count(80)

    assert sorted(map(int, gatherer.texts)) == list(range(40, 120))


async def test_a_queue_that_goes_and_comes_back_is_read_on_where_it_was_left(
    client: eruca.AsyncClient, topic: str, tmp_path: Path
) -> None:
    gatherer = Gatherer()
    consumer = member(client, topic, gatherer, tmp_path, commit_seconds=60)
    async with consumer:
        await until(lambda: len(consumer.assignment) == 4)
        await until_begun(consumer)
        await send(client, topic, range(100))
        await gatherer.until_count(100)
        await client.admin.create_topic(topic, queue_count=1)
        await until(lambda: len(consumer.assignment) == 2)
        await client.admin.create_topic(topic, queue_count=2)
        await until(lambda: len(consumer.assignment) == 4)
        await send(client, topic, range(100, 200))
        await until(lambda: {*map(int, gatherer.texts)} == {*range(200)})

    assert len(gatherer.texts) == 200


async def test_a_broken_offset_file_gives_way_to_the_one_before_it(
    client: eruca.AsyncClient, topic: str, tmp_path: Path
) -> None:
    first = member(client, topic, Gatherer(), tmp_path)
    async with first:
        await until(lambda: len(first.assignment) == 4)
        await until_begun(first)
        await send(client, topic, range(10))
    again = member(client, topic, Gatherer(), tmp_path)
    async with again:
        await until(lambda: len(again.assignment) == 4)
    file = tmp_path / "a" / topic / "offsets.json"
    assert file.with_name("offsets.json.bak").exists()
    file.write_text("{ not JSON")
    await send(client, topic, range(10, 20))

    gatherer = Gatherer()
    async with member(client, topic, gatherer, tmp_path):
        await gatherer.until_count(10)

    assert {str(n) for n in range(10, 20)} <= set(gatherer.texts)


async def test_failures_are_not_retried(
    client: eruca.AsyncClient, topic: str, tmp_path: Path
) -> None:
    seen: list[int] = []
    consumer = client.push_consumer(
        topic,
        message_model="broadcasting",
        offsets=eruca.Offsets(directory=str(tmp_path)),
        client_id="a",
    )

    @consumer.on(topic)
    async def fail(message: eruca.ReceivedMessage) -> None:
        seen.append(message.attempt)
        raise ValueError("never mind")

    async with consumer:
        await until(lambda: len(consumer.assignment) == 4)
        await until_begun(consumer)
        await send(client, topic, range(10))
        await until(lambda: len(seen) == 10)

    assert seen == [1] * 10


async def test_offsets_need_a_directory_that_can_be_written(
    client: eruca.AsyncClient, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(eruca.ValidationError, match=r"offsets\.directory"):
        await member(client, topic, Gatherer(), tmp_path / "file").start()
