"""Requests of one record each that arrive together: stored together, answered one by one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import httpx
import pytest

from eruca.contract.errors import DiskFullError
from eruca.contract.records import Record, RecordLayout, decode_record
from eruca.contract.wire import RECORDS_MEDIA_TYPE, decode_pull
from eruca_broker.core.batches.gathered import SINGLE_SIZE_MAX
from eruca_broker.processors.send_message import Sender
from eruca_broker.processors.singles import GATHERED_SIZE_MAX
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.app import ServiceApp
from support.brokers import RECORDS, batch, client_of, open_broker, record, with_field

pytestmark = pytest.mark.anyio

PATH: Final = "/topics/orders/queues/{}/records"


def single(number: int, *, queue_id: int = 1, size: int = 8) -> bytes:
    return batch([record("orders", b"%0*d" % (size, number), queue_id=queue_id)])


async def send(client: httpx.AsyncClient, body: bytes, queue_id: int = 1) -> httpx.Response:
    return await client.post(PATH.format(queue_id), content=body, headers=RECORDS)


async def together(
    client: httpx.AsyncClient, bodies: list[bytes], queue_id: int = 1
) -> list[httpx.Response]:
    return await asyncio.gather(*(send(client, body, queue_id) for body in bodies))


async def stored(client: httpx.AsyncClient, queue_id: int = 1) -> dict[int, Record]:
    """Return a queue's records by queue offset."""
    answer = await client.get(
        f"/topics/orders/queues/{queue_id}/messages",
        params={"offset": 0, "count_max": 4096, "bytes_max": 8_000_000},
        headers={"accept": RECORDS_MEDIA_TYPE},
    )
    pulled = decode_pull(answer.content)
    records, position = {}, 0
    for size in pulled.sizes:
        found = decode_record(pulled.records, position)
        records[found.queue_offset] = found
        position += size
    return records


async def test_each_gets_the_place_of_its_own_record(client: httpx.AsyncClient) -> None:
    await send(client, single(0))  # creates the topic

    answers = await together(client, [single(number) for number in range(1, 60)])

    records = await stored(client)
    assert len(records) == 60
    for number, answer in enumerate(answers, start=1):
        assert answer.status_code == 201
        receipt = answer.json()
        found = records[receipt["queue_offset"]]
        assert found.body == b"%08d" % number
        assert (found.log_offset, receipt["count"]) == (receipt["log_offset"], 1)
        assert found.born_host.ip == "10.1.2.3"


async def test_the_answers_are_what_one_alone_gets(client: httpx.AsyncClient) -> None:
    alone = (await send(client, single(0))).json()

    for answer in await together(client, [single(number) for number in range(3)]):
        receipt = answer.json()
        changing = {"queue_offset", "log_offset", "stored_at_ms"}
        assert list(receipt) == list(alone)
        assert {key: receipt[key] for key in receipt.keys() - changing} == {
            key: alone[key] for key in alone.keys() - changing
        }


async def test_an_invalid_one_is_refused_alone(client: httpx.AsyncClient) -> None:
    bodies = [single(number) for number in range(9)]
    bodies[4] = with_field(bodies[4], 20 + RecordLayout.QUEUE_ID, b"\0\0\0\7")
    bodies[6] = bodies[6][:-1]

    answers = await together(client, bodies)

    statuses = [answer.status_code for answer in answers]
    assert statuses == [201, 201, 201, 201, 400, 201, 400, 201, 201]
    assert answers[4].json()["code"] == answers[6].json()["code"] == "malformed-records"
    assert answers[4].json()["request_id"] != answers[6].json()["request_id"]
    offsets = [answer.json()["queue_offset"] for answer in answers if answer.status_code == 201]
    assert sorted(offsets) == list(range(7))
    assert len(await stored(client)) == 7


async def test_queues_are_gathered_each_by_itself(client: httpx.AsyncClient) -> None:
    await send(client, single(0))
    kinds = [(number, number % 3) for number in range(30)]

    answers = await asyncio.gather(
        *(send(client, single(n, queue_id=queue_id), queue_id) for n, queue_id in kinds)
    )

    for (_, queue_id), answer in zip(kinds, answers, strict=True):
        assert answer.json()["queue_id"] == queue_id
    assert [len(await stored(client, queue_id)) for queue_id in range(3)] == [10, 11, 10]


async def test_the_first_ones_create_their_topic(client: httpx.AsyncClient) -> None:
    answers = await together(client, [single(number) for number in range(9)])

    assert {answer.status_code for answer in answers} == {201}
    assert {found.body for found in (await stored(client)).values()} == {
        b"%08d" % number for number in range(9)
    }


async def test_more_than_fits_into_a_segment_together_is_stored_one_by_one(tmp_path: Path) -> None:
    size = SINGLE_SIZE_MAX - 500
    count = GATHERED_SIZE_MAX // size + 9  # they are two groups
    async with (
        open_broker(tmp_path / "store", segment_bytes=GATHERED_SIZE_MAX // 2) as app,
        client_of(app) as client,
    ):
        await send(client, single(0))
        answers = await together(client, [single(n, size=size) for n in range(count)])

        assert {answer.status_code for answer in answers} == {201}
        places = {answer.json()["queue_offset"] for answer in answers}
        assert places == set(range(1, count + 1))


async def test_each_counts_as_a_request(app: ServiceApp, client: httpx.AsyncClient) -> None:
    await send(client, single(0))
    counts = app.parts[Sender].counts
    requests, messages, size = counts.requests, counts.messages, counts.bytes

    await together(client, [single(number) for number in range(20)])

    assert (counts.requests - requests, counts.messages - messages) == (20, 20)
    assert counts.bytes - size == 20 * (len(single(0)) - 20)
    assert sum(counts.append_buckets) == counts.requests


async def test_a_store_that_refuses_writes_refuses_each(
    app: ServiceApp, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refuses after the heads were admitted, which cannot be timed from outside."""
    await send(client, single(0))
    sender, store = app.parts[Sender], app.parts[MessageStore]
    monkeypatch.setattr(sender, "admit", lambda *_, **__: None)
    store._writer.refusal = DiskFullError("the disk is full")

    answers = await together(client, [single(number) for number in range(5)])

    assert {answer.status_code for answer in answers} == {503}
    assert {answer.json()["code"] for answer in answers} == {"disk-full"}
    assert len({answer.json()["request_id"] for answer in answers}) == 5
    store._writer.refusal = None
    assert (await send(client, single(1))).json()["queue_offset"] == 1


async def test_a_topic_deleted_meanwhile_loses_no_acknowledged_place(
    client: httpx.AsyncClient,
) -> None:
    await send(client, single(0))

    deleted, *answers = await asyncio.gather(
        client.delete("/topics/orders"), *(send(client, single(number)) for number in range(9))
    )

    assert deleted.status_code == 204
    assert {answer.status_code for answer in answers} <= {201, 404}
    receipts = [answer.json() for answer in answers if answer.status_code == 201]
    assert len({receipt["log_offset"] for receipt in receipts}) == len(receipts)
