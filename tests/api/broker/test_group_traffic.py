"""Messages and bytes by group: what a group takes over, counted exactly once."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from eruca_broker.processors.groups import consumption
from eruca_broker.processors.traffic import TRAFFIC_MAX
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of
from support.delivery_clients import DeliveryClient
from support.group_members import TestMember

pytestmark = pytest.mark.anyio

TEXTS = ("a", "bb", "c" * 1_000, "dddd", "e" * 40, "f")


@pytest.fixture
async def orders(client: httpx.AsyncClient) -> DeliveryClient:
    """Six messages of different sizes in queue 0 of ``orders``."""
    orders = DeliveryClient(client, group="g")
    await orders.create()
    for text in TEXTS:
        await orders.send(text)
    return orders


@pytest.fixture
async def member(client: httpx.AsyncClient, orders: DeliveryClient) -> TestMember:
    member = TestMember(client)
    assert (await member.beat(start="earliest")).is_success
    assert (await member.lock(0)).is_success
    return member


def sizes(app: ServiceApp, topic: str = "orders", queue_id: int = 0) -> list[int]:
    """Return the sizes of the records of a queue, as they are in the log."""
    read = broker_of(app).store.queues.read(topic, queue_id, 0, count_max=100, bytes_max=1 << 20)
    return [len(raw) for raw in read.raws()]


async def counted(
    client: httpx.AsyncClient, topic: str = "orders", group: str = "g"
) -> tuple[float, float]:
    """Return the messages and bytes of a group in a topic, as Prometheus sees them."""
    found = []
    lines = (await client.get("http://localhost/metrics")).text.splitlines()
    for what in ("messages", "bytes"):
        name = f"eruca_broker_group_committed_{what}_total"
        start = f'{name}{{group="{group}",topic="{topic}"}} '
        values = [float(line.removeprefix(start)) for line in lines if line.startswith(start)]
        found.append(sum(values))
    return found[0], found[1]


async def unsized(client: httpx.AsyncClient) -> float:
    name = "eruca_broker_group_committed_unsized_messages_total "
    lines = (await client.get("http://localhost/metrics")).text.splitlines()
    [value] = [float(line.removeprefix(name)) for line in lines if line.startswith(name)]
    return value


async def traffic(client: httpx.AsyncClient, topic: str = "orders") -> dict[str, Any]:
    answer = (await client.get("/groups/g/offsets")).json()
    assert answer["traffic_since"] is not None
    [found] = [one for one in answer["traffic"] if one["topic"] == topic]
    return dict(found)


async def test_commits_count_the_bytes_of_the_messages_that_they_move_past(
    app: ServiceApp, client: httpx.AsyncClient, member: TestMember
) -> None:
    expected = sizes(app)
    assert len(set(expected)) > 3  # else a wrong message could have the right size

    await member.commit((0, 1))
    first = await counted(client)
    await member.commit((0, 3))
    await member.commit((0, 3))
    await member.commit((0, 4))

    assert first == (1, expected[0])
    assert await counted(client) == (4, sum(expected[:4]))
    found = await traffic(client)
    assert (found["message_count"], found["size_bytes"]) == (4, sum(expected[:4]))
    assert await unsized(client) == 0


async def test_a_release_counts_its_final_offset(
    app: ServiceApp, client: httpx.AsyncClient, member: TestMember
) -> None:
    await member.release((0, 5))

    assert await counted(client) == (5, sum(sizes(app)[:5]))


async def test_a_reset_counts_nothing_and_what_is_read_again_counts_again(
    app: ServiceApp, client: httpx.AsyncClient, member: TestMember
) -> None:
    expected = sizes(app)
    await member.commit((0, 4))
    for to in ("latest", {"offset": 1}):
        reset = {"topic": "orders", "to": to}
        assert (await client.post("/groups/g/offsets:reset", json=reset)).is_success
        assert await counted(client) == (4, sum(expected[:4]))

    await member.lock(0)
    await member.commit((0, 3))

    assert await counted(client) == (6, sum(expected[:4]) + sum(expected[1:3]))


async def test_a_commit_backwards_counts_nothing(
    app: ServiceApp, client: httpx.AsyncClient, member: TestMember
) -> None:
    await member.commit((0, 4))
    await member.commit((0, 2))

    assert await counted(client) == (4, sum(sizes(app)[:4]))


async def test_a_queue_that_is_twice_in_a_commit_moves_once(
    app: ServiceApp, client: httpx.AsyncClient, member: TestMember
) -> None:
    await member.commit((0, 4), (0, 2))

    assert await counted(client) == (2, sum(sizes(app)[:2]))


async def test_without_a_position_nobody_knows_how_far_a_commit_moves(
    client: httpx.AsyncClient, orders: DeliveryClient
) -> None:
    body = {"offsets": [{"topic": "orders", "queue_id": 0, "offset": 4}]}
    assert (await client.put("/groups/other/offsets", json=body)).is_success

    assert await counted(client, group="other") == (0, 0)


async def test_deliveries_count_when_they_are_acknowledged(
    app: ServiceApp, client: httpx.AsyncClient, orders: DeliveryClient
) -> None:
    expected = sizes(app)
    received = await orders.receive(4)
    assert await counted(client) == (0, 0)

    assert (await orders.ack(received[3], received[0], received[2])).is_success

    assert await counted(client) == (3, expected[0] + expected[2] + expected[3])


async def test_an_ordered_group_counts_one_after_the_other(
    app: ServiceApp, client: httpx.AsyncClient, orders: DeliveryClient
) -> None:
    assert (await client.put("/groups/g", json={"ordered": True})).is_success
    for count in (1, 2):
        [one] = await orders.receive(3)  # without a key, each waits for all before it
        assert (await orders.ack(one)).is_success

        assert await counted(client) == (count, sum(sizes(app)[:count]))


async def test_a_rejected_delivery_counts_once_when_it_is_acknowledged_at_last(
    app: ServiceApp, client: httpx.AsyncClient, orders: DeliveryClient
) -> None:
    [first] = await orders.receive(1)
    assert (await orders.nack(first, delay_seconds=0)).is_success
    assert await counted(client) == (0, 0)
    [again] = await orders.receive(1)
    assert again["attempt"] == 2

    assert (await orders.ack(again)).is_success

    assert await counted(client) == (1, sizes(app)[0])


async def test_a_dead_delivery_is_not_counted(
    client: httpx.AsyncClient, orders: DeliveryClient
) -> None:
    assert (await client.put("/groups/g", json={"retries_max": 0})).is_success
    [dead] = await orders.receive(1)

    assert (await orders.nack(dead)).json()["results"][0]["outcome"] == "dead_letter"

    assert await counted(client) == (0, 0)


async def test_a_retry_counts_in_the_retry_topic(
    app: ServiceApp, client: httpx.AsyncClient, member: TestMember
) -> None:
    place = {"topic": "orders", "queue_id": 0, "queue_offset": 0, "delay_seconds": 0}
    body = {
        "client_id": member.name,
        "incarnation": member.incarnation,
        "messages": [{**place, "token": member.tokens["orders", 0]}],
    }
    sent = await client.post("/groups/g/retries", json=body)
    assert sent.is_success, sent.text
    await member.commit((0, 1))
    assert await counted(client) == (1, sizes(app)[0])
    await broker_of(app).timers.fire()

    await member.lock(0, topic="%RETRY%g")
    await member.commit((0, 1), topic="%RETRY%g")

    assert await counted(client, "%RETRY%g") == (1, sizes(app, "%RETRY%g")[0])


async def test_too_many_messages_at_once_have_no_bytes_and_are_counted_as_such(
    client: httpx.AsyncClient, member: TestMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "SUMMED_COUNT_MAX", 3)

    await member.commit((0, 4))

    assert await counted(client) == (4, 0)
    assert await unsized(client) == 4


async def test_pairs_beyond_the_maximum_are_others_and_their_traffic_is_unknown(
    app: ServiceApp, client: httpx.AsyncClient, member: TestMember
) -> None:
    flows = broker_of(app).group_work.consumption.flows
    for number in range(TRAFFIC_MAX):
        flows.add(("full", f"topic-{number}"), 1)

    await member.commit((0, 2))

    found = await traffic(client)
    assert (found["message_count"], found["size_bytes"]) == (None, None)
    assert await counted(client, "(others)", "(others)") == (2, sum(sizes(app)[:2]))


async def test_a_deleted_group_has_no_samples(
    client: httpx.AsyncClient, member: TestMember
) -> None:
    await member.commit((0, 2))
    await member.leave()
    assert (await client.delete("/groups/g")).is_success

    assert await counted(client) == (0, 0)
