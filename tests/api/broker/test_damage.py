"""Damage: whatever byte of a stored record changes, no way out hands the message out as sound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import httpx
import pytest

from eruca.contract.wire import (
    DAMAGED_OFFSETS_HEADER,
    LOG_MEDIA_TYPE,
    RECORDS_MEDIA_TYPE,
    PullStatus,
    decode_multi_pull,
    decode_pull,
)
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of

pytestmark = pytest.mark.anyio

QUEUE: Final = "/topics/orders/queues/0/messages"
BODY: Final = b"one hundred euros"
AS_RECORDS: Final = {"accept": RECORDS_MEDIA_TYPE}


class Place(NamedTuple):
    """Place of the damaged record; one sound message is before it and one after."""

    log_offset: int
    size: int


@pytest.fixture
async def place(client: httpx.AsyncClient) -> Place:
    for text in ("before", BODY.decode(), "behind"):
        message = {
            "body": {"text": text},
            "tag": "paid",
            "keys": ["k"],
            "properties": {"price": "100"},
        }
        answer = await client.post("/topics/orders/messages?queue_id=0", json=message)
        assert answer.status_code == 201, answer.text
    stored = (await client.get(QUEUE, params={"offset": 1, "count_max": 1})).json()["messages"][0]
    assert stored["damage"] is None
    return Place(stored["log_offset"], stored["size"])


@contextmanager
def flipped(app: ServiceApp, offset: int, change: int) -> Iterator[None]:
    """Change a byte of the log in its file, as a disk may under a running broker."""
    [path] = (broker_of(app).store.directory / "commitlog").iterdir()
    with path.open("r+b", buffering=0) as file:
        file.seek(offset)
        [byte] = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ change]))
        try:
            yield
        finally:
            file.seek(offset)
            file.write(bytes([byte]))


def changes(place: Place) -> Iterator[tuple[int, int]]:
    """Yield each byte of the record, with a bit of it that changes."""
    for position in range(place.size):
        yield place.log_offset + position, 1 << position % 8


async def test_a_pull_of_records_ends_before_the_message_and_then_says_that_it_is_damaged(
    app: ServiceApp, client: httpx.AsyncClient, place: Place
) -> None:
    asked: list[dict[str, str]] = [
        {"offset": "0"},
        {"offset": "1"},
        {"offset": "1", "filter": "paid"},
    ]
    for offset, change in changes(place):
        with flipped(app, offset, change):
            answers = [
                decode_pull((await client.get(QUEUE, params=p, headers=AS_RECORDS)).content)
                for p in asked
            ]
        first, *others = answers
        assert (first.status, len(first.sizes), first.next_offset) == (PullStatus.FOUND, 1, 1)
        for damaged in others:
            assert (damaged.status, len(damaged.sizes)) == (PullStatus.DAMAGED, 0), offset
            assert damaged.next_offset == 2
            assert f"at log offset {place.log_offset}: " in damaged.damage


async def test_a_pull_of_many_queues_says_so_as_well(
    app: ServiceApp, client: httpx.AsyncClient, place: Place
) -> None:
    asked = {"queues": [{"topic": "orders", "queue_id": 0, "offset": 1}]}
    for offset, change in changes(place):
        with flipped(app, offset, change):
            records = await client.post("/pull", json=asked, headers=AS_RECORDS)
            shown = await client.post("/pull", json=asked)
        [(_, pulled)] = decode_multi_pull(records.content)
        assert (pulled.status, pulled.next_offset) == (PullStatus.DAMAGED, 2), offset
        assert_marked(shown.json()["queues"][0]["answer"], place)


async def test_a_pull_in_json_marks_the_message(
    app: ServiceApp, client: httpx.AsyncClient, place: Place
) -> None:
    for offset, change in changes(place):
        with flipped(app, offset, change):
            plain = await client.get(QUEUE, params={"offset": 1})
            filtered = await client.get(
                QUEUE, params={"offset": 1, "filter": "price < 50", "filter_type": "sql92"}
            )
        assert_marked(plain.json(), place)
        assert_marked(filtered.json(), place)


def assert_marked(answer: dict[str, Any], place: Place) -> None:
    assert (answer["status"], answer["next_offset"]) == ("damaged", 2), answer
    [message] = answer["messages"]
    assert (message["queue_offset"], message["log_offset"]) == (1, place.log_offset)
    assert message["damage"]
    assert (message["body"], message["tag"], message["properties"]) == (None, None, {})


async def test_a_look_up_by_key_is_not_complete_and_says_where(
    app: ServiceApp, client: httpx.AsyncClient, place: Place
) -> None:
    for offset, change in changes(place):
        with flipped(app, offset, change):
            found = (await client.get("/topics/orders/messages", params={"key": "k"})).json()
        assert [m["body"]["text"] for m in found["messages"]] == ["behind", "before"], offset
        assert not found["is_complete"]
        assert [damaged["log_offset"] for damaged in found["damaged"]] == [place.log_offset]


@pytest.mark.parametrize("form", ["application/json", LOG_MEDIA_TYPE, "application/octet-stream"])
async def test_the_record_itself_is_refused(
    app: ServiceApp, client: httpx.AsyncClient, place: Place, form: str
) -> None:
    path = f"/log/records/{place.log_offset}"
    codes = Counter[tuple[int, str]]()
    for offset, change in changes(place):
        with flipped(app, offset, change):
            answer = await client.get(path, headers={"accept": form})
        codes[answer.status_code, answer.json()["code"]] += 1
    hidden = codes.pop((404, "record-not-found"))  # its offset in the log is damaged
    assert codes.keys() == {(410, "message-damaged")}
    assert hidden < 12 < codes.total()
    assert (await client.get(path, headers={"accept": form})).status_code == 200


async def test_the_log_feed_names_the_record_or_ends_before_it(
    app: ServiceApp, client: httpx.AsyncClient, place: Place
) -> None:
    asked = {"from_offset": place.log_offset, "bytes_max": 1}
    named = 0
    for offset, change in changes(place):
        with flipped(app, offset, change):
            raw = await client.get("/log", params=asked, headers={"accept": LOG_MEDIA_TYPE})
            shown = await client.get("/log", params=asked, headers={"accept": "application/json"})
        if raw.status_code == 200:
            named += 1
            assert raw.headers[DAMAGED_OFFSETS_HEADER] == str(place.log_offset)
            assert shown.json()["records"] == []
            assert [d["log_offset"] for d in shown.json()["damaged"]] == [place.log_offset]
        else:  # where the next one starts is not known, or that one starts here
            assert raw.status_code in {404, 503}, raw.text
            assert shown.status_code == raw.status_code
    assert named > place.size * 3 // 4


async def test_a_delivery_has_its_place_alone_and_can_be_finished(
    app: ServiceApp, client: httpx.AsyncClient, place: Place
) -> None:
    for number, (offset, change) in enumerate(changes(place)):
        if number % 7:
            continue  # each takes a group of its own
        group = f"/groups/g{number}"
        await client.put(group, json={"start": "earliest"})
        ask = {"topic": "orders", "count_max": 10}
        with flipped(app, offset, change):
            handed_out = [
                one
                for _ in range(3)
                for one in (await client.post(f"{group}/deliveries", json=ask)).json()["deliveries"]
            ]
        assert [one["message"]["queue_offset"] for one in handed_out] == [0, 1, 2], offset
        assert handed_out[1]["message"]["body"] is None
        assert handed_out[1]["message"]["damage"]
        handles = [one["handle"] for one in handed_out]
        done = await client.post(f"{group}/deliveries:ack", json={"handles": handles})
        assert done.status_code == 204


async def test_what_the_disk_gives_back_is_sound_again(
    app: ServiceApp, client: httpx.AsyncClient, place: Place
) -> None:
    with flipped(app, place.log_offset + 90, 1):
        assert (await client.get(QUEUE, params={"offset": 1})).json()["status"] == "damaged"

    repaired = (await client.get(QUEUE, params={"offset": 1})).json()

    assert [m["body"]["text"] for m in repaired["messages"]] == [BODY.decode(), "behind"]


async def test_damaged_reads_are_counted(
    app: ServiceApp, client: httpx.AsyncClient, place: Place
) -> None:
    with flipped(app, place.log_offset + 90, 1):
        await client.get(QUEUE, params={"offset": 1})

    shown = (await client.get("http://localhost/metrics")).text

    assert "eruca_broker_damaged_reads_total 1.0" in shown


async def test_no_property_of_the_records_own_is_shown_or_can_be_set(
    client: httpx.AsyncClient, place: Place
) -> None:
    pulled = (await client.get(QUEUE, params={"offset": 1})).json()["messages"][0]
    record = (await client.get(f"/log/records/{place.log_offset}")).json()
    refused = await client.post(
        "/topics/orders/messages",
        json={"body": {"text": "x"}, "properties": {"__CRC32#": "1234567890"}},
    )

    assert pulled["properties"] == {"price": "100"}
    assert "__CRC32#" not in record["system_properties"]
    assert (refused.status_code, refused.json()["code"]) == (422, "validation-failed")
