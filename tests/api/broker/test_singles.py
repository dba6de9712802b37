"""Requests of one message each that arrive together: stored together, answered one by one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import httpx
import pytest

from eruca.contract.errors import DiskFullError
from eruca.contract.records import Record, RecordLayout, decode_record
from eruca.contract.wire import OCTETS_MEDIA_TYPE, RECORDS_MEDIA_TYPE, decode_pull
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.batches.gathered import SINGLE_SIZE_MAX
from eruca_broker.processors.send_message import Sender
from eruca_broker.processors.singles import GATHERED_SIZE_MAX, Gathering, Singles
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.app import ServiceApp
from support.brokers import RECORDS, batch, client_of, open_broker, record, with_field

pytestmark = pytest.mark.anyio

PATH: Final = "/topics/orders/queues/{}/records"
JSON_PATH: Final = "/topics/orders/messages"

Send: TypeAlias = Callable[..., Coroutine[Any, Any, httpx.Response]]
"""Sends the message of a number, of a size in bytes (8 by default), to a queue (1 by default)."""


def single(number: int, *, queue_id: int = 1, size: int = 8) -> bytes:
    return batch([record("orders", b"%0*d" % (size, number), queue_id=queue_id)])


async def send_record(
    client: httpx.AsyncClient, number: int, *, queue_id: int = 1, size: int = 8
) -> httpx.Response:
    body = single(number, queue_id=queue_id, size=size)
    return await client.post(PATH.format(queue_id), content=body, headers=RECORDS)


async def send_json(
    client: httpx.AsyncClient, number: int, *, queue_id: int = 1, size: int = 8
) -> httpx.Response:
    message = {"body": {"text": f"{number:0{size}}"}, "message_id": f"id-{number}"}
    return await client.post(JSON_PATH, json=message, params={"queue_id": queue_id})


async def send_octets(
    client: httpx.AsyncClient, number: int, *, queue_id: int = 1, size: int = 8
) -> httpx.Response:
    return await client.post(
        JSON_PATH,
        content=b"%0*d" % (size, number),
        params={"queue_id": queue_id, "message_id": f"id-{number}"},
        headers={"content-type": OCTETS_MEDIA_TYPE},
    )


@pytest.fixture(params=[send_record, send_json, send_octets])
def send(request: pytest.FixtureRequest) -> Send:
    return cast(Send, request.param)


async def together(
    client: httpx.AsyncClient, send: Send, numbers: Iterable[int], **named: int
) -> list[httpx.Response]:
    return await asyncio.gather(*(send(client, number, **named) for number in numbers))


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


async def test_each_gets_the_place_of_its_own_message(
    client: httpx.AsyncClient, send: Send
) -> None:
    await send(client, 0)  # creates the topic

    answers = await together(client, send, range(1, 60))

    records = await stored(client)
    assert len(records) == 60
    for number, answer in enumerate(answers, start=1):
        assert answer.status_code == 201
        receipt = answer.json()
        found = records[receipt["queue_offset"]]
        assert found.body == b"%08d" % number
        assert found.log_offset == receipt["log_offset"]
        assert found.born_host.ip == "10.1.2.3"
        if send is send_record:
            assert receipt["count"] == 1
        else:
            assert receipt["message_id"] == f"id-{number}"


async def test_the_answers_are_what_one_alone_gets(client: httpx.AsyncClient, send: Send) -> None:
    alone = (await send(client, 0)).json()

    for answer in await together(client, send, range(3)):
        receipt = answer.json()
        changing = {"queue_offset", "log_offset", "stored_at_ms"}
        changing |= {"message_id", "offset_message_id", "stored_at"}
        assert list(receipt) == list(alone)
        assert {key: receipt[key] for key in receipt.keys() - changing} == {
            key: alone[key] for key in alone.keys() - changing
        }


async def test_an_invalid_record_is_refused_alone(client: httpx.AsyncClient) -> None:
    bodies = [single(number) for number in range(9)]
    bodies[4] = with_field(bodies[4], 20 + RecordLayout.QUEUE_ID, b"\0\0\0\7")
    bodies[6] = bodies[6][:-1]

    answers = await asyncio.gather(
        *(client.post(PATH.format(1), content=body, headers=RECORDS) for body in bodies)
    )

    statuses = [answer.status_code for answer in answers]
    assert statuses == [201, 201, 201, 201, 400, 201, 400, 201, 201]
    assert answers[4].json()["code"] == answers[6].json()["code"] == "malformed-records"
    assert answers[4].json()["request_id"] != answers[6].json()["request_id"]
    offsets = [answer.json()["queue_offset"] for answer in answers if answer.status_code == 201]
    assert sorted(offsets) == list(range(7))
    assert len(await stored(client)) == 7


async def test_an_invalid_message_is_refused_alone(client: httpx.AsyncClient) -> None:
    messages: list[dict[str, Any]] = [{"body": {"text": str(number)}} for number in range(9)]
    messages[4]["keys"] = ["a b"]
    messages[6]["body"] = {"text": ""}

    answers = await asyncio.gather(
        *(client.post(JSON_PATH, json=message, params={"queue_id": 1}) for message in messages)
    )

    statuses = [answer.status_code for answer in answers]
    assert statuses == [201, 201, 201, 201, 422, 201, 422, 201, 201]
    assert answers[4].json()["errors"][0]["pointer"] == "/body/keys/0"
    offsets = [answer.json()["queue_offset"] for answer in answers if answer.status_code == 201]
    assert sorted(offsets) == list(range(7))
    assert len(await stored(client)) == 7


async def test_queues_are_gathered_each_by_itself(client: httpx.AsyncClient, send: Send) -> None:
    await send(client, 0)
    kinds = [(number, number % 3) for number in range(30)]

    answers = await asyncio.gather(*(send(client, n, queue_id=queue_id) for n, queue_id in kinds))

    for (_, queue_id), answer in zip(kinds, answers, strict=True):
        assert answer.json()["queue_id"] == queue_id
    assert [len(await stored(client, queue_id)) for queue_id in range(3)] == [10, 11, 10]


async def test_messages_without_a_queue_take_turns(client: httpx.AsyncClient) -> None:
    message = {"body": {"text": "a"}}
    await client.post(JSON_PATH, json=message)

    answers = await asyncio.gather(*(client.post(JSON_PATH, json=message) for _ in range(16)))

    used = Counter(answer.json()["queue_id"] for answer in answers)
    assert len(used) > 1
    assert len(set(used.values())) == 1


async def test_forms_keep_the_order_in_which_they_came(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    """One client's requests of several forms cannot be timed to come in one tick."""
    await send_record(client, 0)
    settled: asyncio.Queue[tuple[str, int, int]] = asyncio.Queue()

    def form(name: str) -> Singles[bytes, int]:
        def settle(callers: Sequence[int], outcome: Appended | Exception) -> None:
            assert isinstance(outcome, Appended)
            for place, caller in enumerate(callers, start=outcome.queue_offset):
                settled.put_nowait((name, caller, place))

        return Singles(
            app.parts[Gathering],
            together=batch_of_records,
            settled=settle,
            send_alone=lambda callers: pytest.fail(f"{callers} are sent alone"),
        )

    one, other = form("one"), form("other")
    encoded = record("orders", queue_id=1)
    for number, each in enumerate([one, other, one, one, other], start=1):
        each.add(("orders", 1), encoded, len(encoded), number)

    names = ["one", "other", "one", "one", "other"]
    for number, name in enumerate(names, start=1):
        assert await settled.get() == (name, number, number)


async def test_the_first_ones_create_their_topic(client: httpx.AsyncClient, send: Send) -> None:
    answers = await together(client, send, range(9))

    assert {answer.status_code for answer in answers} == {201}
    assert {found.body for found in (await stored(client)).values()} == {
        b"%08d" % number for number in range(9)
    }


async def test_more_than_fits_into_a_segment_together_is_stored_one_by_one(
    tmp_path: Path, send: Send
) -> None:
    size = SINGLE_SIZE_MAX - 500
    count = GATHERED_SIZE_MAX // size + 9  # they are two groups
    async with (
        open_broker(tmp_path / "store", segment_bytes=GATHERED_SIZE_MAX // 2) as app,
        client_of(app) as client,
    ):
        await send(client, 0)
        answers = await together(client, send, range(1, count + 1), size=size)

        assert {answer.status_code for answer in answers} == {201}
        places = {answer.json()["queue_offset"] for answer in answers}
        assert places == set(range(1, count + 1))


async def test_each_counts_as_a_request(
    app: ServiceApp, client: httpx.AsyncClient, send: Send
) -> None:
    await send(client, 10)
    counts = app.parts[Sender].counts
    requests, messages, size = counts.requests, counts.messages, counts.bytes

    await together(client, send, range(11, 31))

    assert (counts.requests - requests, counts.messages - messages) == (20, 20)
    assert counts.bytes - size == 20 * size
    assert sum(counts.append_buckets) == counts.requests


async def test_a_store_that_refuses_writes_refuses_each(
    app: ServiceApp, client: httpx.AsyncClient, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refuses after the heads were admitted, which cannot be timed from outside."""
    await send(client, 0)
    sender, store = app.parts[Sender], app.parts[MessageStore]
    monkeypatch.setattr(sender, "admit", lambda *_, **__: None)
    store._writer.refusal = DiskFullError("the disk is full")

    answers = await together(client, send, range(5))

    assert {answer.status_code for answer in answers} == {503}
    assert {answer.json()["code"] for answer in answers} == {"disk-full"}
    assert len({answer.json()["request_id"] for answer in answers}) == 5
    store._writer.refusal = None
    assert (await send(client, 1)).json()["queue_offset"] == 1


async def test_a_topic_deleted_meanwhile_loses_no_acknowledged_place(
    client: httpx.AsyncClient, send: Send
) -> None:
    await send(client, 0)

    deleted, *answers = await asyncio.gather(
        client.delete("/topics/orders"), *(send(client, number) for number in range(9))
    )

    assert deleted.status_code == 204
    assert {answer.status_code for answer in answers} <= {201, 404}
    receipts = [answer.json() for answer in answers if answer.status_code == 201]
    assert len({receipt["log_offset"] for receipt in receipts}) == len(receipts)
