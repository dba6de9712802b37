"""The log feed and single records, as a client sees them."""

from __future__ import annotations

import asyncio
import zlib

import httpx
import pytest

from eruca.contract.records import Record, SysFlag, decode_record
from eruca.contract.wire import LOG_MEDIA_TYPE, OCTETS_MEDIA_TYPE
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_chassis.app import ServiceApp
from support.brokers import RECORDS, batch, broker_of, record, rot, rot_beyond_reading
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

AS_JSON = {"accept": "application/json"}


async def put(client: httpx.AsyncClient, text: str) -> int:
    answer = await client.post("/topics/orders/messages", json={"body": {"text": text}})
    log_offset: int = answer.json()["log_offset"]
    return log_offset


def records(content: bytes) -> list[Record]:
    found, position = [], 0
    while position < len(content):
        found.append(decode_record(content, position))
        position += found[-1].size
    return found


async def test_the_whole_log_can_be_followed(client: httpx.AsyncClient) -> None:
    for number in range(50):
        await put(client, f"message {number}")

    read: list[Record] = []
    offset = 0
    while True:
        answer = await client.get("/log", params={"from_offset": offset, "bytes_max": 1000})
        assert answer.headers["content-type"] == LOG_MEDIA_TYPE
        read += records(answer.content)
        following = int(answer.headers["eruca-next-offset"])
        assert int(answer.headers["eruca-min-offset"]) == 0
        if following == offset:
            break
        offset = following

    assert offset == int(answer.headers["eruca-max-offset"])
    bodies = [record.body for record in read if record.topic == "orders"]
    assert bodies == [b"message %d" % number for number in range(50)]
    assert "ERUCA_SYS_EVENTS" in {record.topic for record in read}


async def test_json_shows_what_only_the_logs_readers_see(client: httpx.AsyncClient) -> None:
    log_offset = await put(client, "x")

    answer = (await client.get("/log", params={"from_offset": log_offset}, headers=AS_JSON)).json()

    [view] = answer["records"]
    assert (view["log_offset"], view["message"]["body"]) == (log_offset, {"text": "x"})
    assert view["system_properties"] == {"UNIQ_KEY": view["message"]["message_id"]}
    assert answer["next_offset"] == log_offset + view["size"] == answer["max_offset"]


async def test_json_ends_early_where_bodies_are_large_and_goes_on_from_there(
    client: httpx.AsyncClient,
) -> None:
    first = await put(client, "a" * 1000)
    second = await put(client, "b" * 1000)

    query = {"from_offset": first, "bytes_max": 10}
    answer = (await client.get("/log", params=query, headers=AS_JSON)).json()

    assert (len(answer["records"]), answer["next_offset"]) == (1, second)


async def test_at_its_end_the_log_is_waited_for(app: ServiceApp, client: httpx.AsyncClient) -> None:
    await put(client, "old")
    end = broker_of(app).store.log_max_offset
    feed = asyncio.create_task(client.get("/log", params={"from_offset": end, "wait_seconds": 30}))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not len(broker_of(app).held):  # noqa: ASYNC110  (it has no event for this)
            await asyncio.sleep(0)

    await put(client, "new")

    assert [record.body for record in records((await feed).content)] == [b"new"]


async def test_without_news_the_feed_answers_empty(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    end = broker_of(app).store.log_max_offset

    for wait_seconds in (0, 0.05):
        answer = await client.get("/log", params={"from_offset": end, "wait_seconds": wait_seconds})
        assert (answer.status_code, answer.content) == (200, b"")
        assert int(answer.headers["eruca-next-offset"]) == end


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 422, "validation-failed"),
        ("from_offset=-1", 422, "validation-failed"),
        ("from_offset=9223372036854775808", 422, "validation-failed"),
        ("from_offset=0&bytes_max=0", 422, "validation-failed"),
        ("from_offset=0&wait_seconds=31", 422, "validation-failed"),
        ("from_offset=1", 404, "record-not-found"),
        ("from_offset=9223372036854775807", 404, "record-not-found"),
    ],
)
async def test_an_offset_at_which_nothing_starts_is_refused(
    client: httpx.AsyncClient, query: str, status: int, code: str
) -> None:
    refused = await client.get(f"/log?{query}")

    assert (refused.status_code, refused.json()["code"]) == (status, code)


async def test_one_record_comes_in_either_form(client: httpx.AsyncClient) -> None:
    log_offset = await put(client, "x")

    as_json = await client.get(f"/log/records/{log_offset}")
    raw = await client.get(f"/log/records/{log_offset}", headers={"accept": LOG_MEDIA_TYPE})

    assert as_json.json()["message"]["body"] == {"text": "x"}
    assert raw.headers["content-type"] == LOG_MEDIA_TYPE
    assert decode_record(raw.content).body == b"x"
    assert len(raw.content) == as_json.json()["size"]


async def test_a_body_comes_as_it_was_sent(client: httpx.AsyncClient) -> None:
    octets = {"accept": OCTETS_MEDIA_TYPE}
    picture = bytes(range(256))
    sent = await client.post(
        "/topics/t/messages", content=picture, headers={"content-type": OCTETS_MEDIA_TYPE}
    )

    answer = await client.get(f"/log/records/{sent.json()['log_offset']}", headers=octets)

    assert (answer.headers["content-type"], answer.content) == (OCTETS_MEDIA_TYPE, picture)


@pytest.mark.parametrize(
    ("compression", "packed", "status", "content"),
    [
        (SysFlag.COMPRESSION_ZLIB, zlib.compress(b"text" * 100), 200, b"text" * 100),
        (SysFlag.COMPRESSION_LZ4, b"?", 406, b"lz4"),
    ],
)
async def test_a_body_comes_uncompressed_or_not_at_all(
    client: httpx.AsyncClient, compression: SysFlag, packed: bytes, status: int, content: bytes
) -> None:
    flag = int(SysFlag.COMPRESSED | compression)
    content_sent = batch([record("orders", packed, queue_id=0, sys_flag=flag)])
    sent = await client.post(
        "/topics/orders/queues/0/records",
        content=content_sent,
        headers=RECORDS,
    )

    answer = await client.get(
        f"/log/records/{sent.json()['log_offset']}", headers={"accept": OCTETS_MEDIA_TYPE}
    )

    assert answer.status_code == status
    assert content in answer.content


@pytest.mark.parametrize("shift", [1, -1, 10_000, 2**40])
async def test_no_record_starts_elsewhere(client: httpx.AsyncClient, shift: int) -> None:
    log_offset = await put(client, "x")

    for accept in ("application/json", LOG_MEDIA_TYPE):
        refused = await client.get(f"/log/records/{log_offset + shift}", headers={"accept": accept})
        assert (refused.status_code, refused.json()["code"]) == (404, "record-not-found")


async def test_other_forms_are_not_offered(client: httpx.AsyncClient) -> None:
    for path in ("/log?from_offset=0", "/log/records/0"):
        assert (await client.get(path, headers={"accept": "text/html"})).status_code == 406


@pytest.mark.parametrize("at", [2, 30])  # of its bytes: in the size, in its own log offset
async def test_a_log_that_cannot_be_read_on_is_no_log_that_begins_elsewhere(
    app: ServiceApp, client: httpx.AsyncClient, at: int
) -> None:
    first = await put(client, "first")
    damaged = await put(client, "damaged")
    await put(client, "last")
    [segment] = (broker_of(app).store.directory / "commitlog").iterdir()
    with segment.open("r+b") as file:
        file.seek(damaged + at)
        file.write(b"\x55")

    answer = await client.get("/log", params={"from_offset": first})
    amid = await client.get("/log", params={"from_offset": first + 1})

    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert f"the record at log offset {damaged} is damaged" in answer.json()["detail"]
    assert (amid.status_code, amid.json()["code"]) == (404, "record-not-found")


async def test_json_passes_over_what_cannot_be_read_any_more(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    first = await put(client, "first")
    await put(client, "rotten")
    await put(client, "last")
    rot_beyond_reading(app, b"rotten")

    answer = await client.get("/log", params={"from_offset": first}, headers=AS_JSON)

    assert answer.status_code == 200, answer.text
    shown = [one["message"]["body"]["text"] for one in answer.json()["records"]]
    assert shown == ["first", "last"]


async def test_a_record_that_has_rotted_is_told_apart_from_one_that_is_not_there(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    rotten = await put(client, "rotten")
    rot(app, b"rotten")

    answer = await client.get(f"/log/records/{rotten}")

    assert (answer.status_code, answer.json()["code"]) == (410, "message-damaged")
    assert f"the record at log offset {rotten} is damaged" in answer.json()["detail"]
    assert "backup" in answer.json()["fix"]


async def test_rule_12_a_position_has_an_epoch_that_any_replica_checks(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    await put(client, "before")
    store = broker_of(app).store
    begins = [store.log.read(0, 1).max_offset]
    for epoch in (7, 8):
        store.role.follow()
        await store.role.lead(EpochBegan(epoch, 1, "c2d07be84a159f31", "10.0.0.1:10911", 0))
        await put(client, f"in epoch {epoch}")
        begins.append(store.log.read(0, 1).max_offset)

    read: list[tuple[str | None, int]] = []
    offset, epoch = 0, 0
    while offset < begins[-1]:
        answer = await client.get("/log", params={"from_offset": offset, "epoch": epoch})
        offset = int(answer.headers["eruca-next-offset"])
        assert int(answer.headers["eruca-max-offset"]) == begins[-1]
        epoch = int(answer.headers.get("eruca-epoch", 0))
        read.append((answer.headers.get("eruca-epoch"), offset))

    assert read == [(None, begins[0]), ("7", begins[1]), ("8", begins[2])]
    shown = await client.get("/log", params={"from_offset": begins[0]}, headers=AS_JSON)
    assert shown.json()["epoch"] == 7
    stale = await client.get("/log", params={"from_offset": begins[2], "epoch": 7})
    assert (stale.status_code, stale.json()["code"]) == (409, "stale-epoch")


async def test_a_position_ahead_of_a_replica_is_answered_without_records(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    await put(client, "x")
    end = broker_of(app).store.visible_offset
    broker_of(app).store.role.follow()

    for position in ({"from_offset": 10**6, "epoch": 0}, {"from_offset": end, "epoch": 3}):
        ahead = await client.get("/log", params=position)

        assert (ahead.status_code, ahead.content) == (200, b"")
        assert int(ahead.headers["eruca-next-offset"]) == position["from_offset"]
        assert int(ahead.headers.get("eruca-epoch", 0)) == position["epoch"]
        assert int(ahead.headers["eruca-max-offset"]) == end


async def test_a_position_ahead_of_a_master_was_lost(client: httpx.AsyncClient) -> None:
    await put(client, "x")

    for position, status in (
        ({"from_offset": 10**6}, 404),
        ({"from_offset": 10**6, "epoch": 0}, 404),
        ({"from_offset": 10**6, "epoch": 3}, 409),
    ):
        assert (await client.get("/log", params=position)).status_code == status
