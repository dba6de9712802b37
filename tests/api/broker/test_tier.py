"""A broker with a tier, as clients see it: retention deletes here, and nothing is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca.contract.wire import LOG_MEDIA_TYPE
from eruca_broker.processors import store_times
from eruca_broker.store.tier.cache import TierCache
from eruca_chassis.app import ServiceApp
from eruca_chassis.start import StartError
from support.brokers import broker_of, client_of, open_broker
from support.delivery_clients import DeliveryClient
from support.pulled_messages import AS_RECORDS, QUEUE, position
from support.roles import roles_of_store
from support.stores import without_log_lines
from support.tiers import brought_up, delete_local, tiering_of

pytestmark = pytest.mark.anyio
COUNT = 40
AS_LOG = {"accept": LOG_MEDIA_TYPE}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[ServiceApp]:
    with without_log_lines():
        async with open_broker(
            tmp_path / "store",
            segment_bytes=64 * 1024,
            tier_url=str(tmp_path / "tier"),
            tier_upload_rate_max=0,
        ) as app:
            yield app


@pytest.fixture
async def client(app: ServiceApp) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as client:
        await fill(client)
        yield client


async def pull_all(client: httpx.AsyncClient) -> bytes:
    """Return all records of the queue, as the wire has them."""
    offset, records = 0, b""
    while offset < COUNT:
        answer = await client.get(
            QUEUE, params={"offset": offset, "count_max": 1}, headers=AS_RECORDS
        )
        assert answer.status_code == 200, answer.text
        records += answer.content
        offset += 1
    return records


async def fill(client: httpx.AsyncClient) -> None:
    sender = DeliveryClient(client)
    await sender.create()
    for number in range(COUNT):
        await sender.send(f"{number} {'x' * 8_000}")


async def tier_and_delete(app: ServiceApp) -> None:
    store = broker_of(app).store
    await store.upkeep.flush()
    await brought_up(tiering_of(app))
    await delete_local(store, tiering_of(app))
    assert store.queues.local_range("orders", 0)[0] > COUNT // 2


async def test_pulls_answer_the_same_bytes_before_and_after(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    before = await pull_all(client)
    await tier_and_delete(app)

    assert await pull_all(client) == before


async def test_a_group_gets_what_is_only_in_the_tier(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    await tier_and_delete(app)
    group, found = DeliveryClient(client), list[str]()
    while len(found) < COUNT:
        leased = await group.receive()
        assert leased, "the queue's end, or a message is missing"
        found += [one["message"]["body"]["text"].partition(" ")[0] for one in leased]
        await group.ack(*leased)
    assert found == [str(number) for number in range(COUNT)]


async def read_log(client: httpx.AsyncClient) -> bytes:
    """Return the bytes of all records that the feed has."""
    records, offset, is_more = b"", 0, True
    while is_more:
        answer = await client.get("/log", params={"from_offset": offset, "bytes_max": 100_000})
        assert answer.status_code == 200, answer.text
        assert answer.headers["eruca-min-offset"] == "0"
        records += answer.content
        following = int(answer.headers["eruca-next-offset"])
        is_more, offset = following > offset, following
    assert offset == int(answer.headers["eruca-max-offset"])
    return records


async def test_the_feed_and_single_records_answer_the_same_bytes_before_and_after(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    before = await read_log(client)
    first = (await client.get("/log/records/0", headers=AS_LOG)).content
    await tier_and_delete(app)

    after = await read_log(client)

    assert after[: len(before)] == before
    assert first == before[: len(first)] != b""
    assert (await client.get("/log/records/0", headers=AS_LOG)).content == first
    assert (await client.get("/log/records/0")).json()["log_offset"] == 0
    assert (await client.get("/log/records/1")).json()["code"] == "record-not-found"
    as_json = {"accept": "application/json"}
    told = (await client.get("/log", params={"from_offset": 0}, headers=as_json)).json()
    assert (told["records"][0]["log_offset"], told["min_offset"]) == (0, 0)


async def test_a_key_is_found_on_the_pages_of_the_tier(
    app: ServiceApp, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    places = [(await client.get(QUEUE, params={"offset": n, "count_max": 1})) for n in (0, 39)]
    ids = [answer.json()["messages"][0]["message_id"] for answer in places]
    await tier_and_delete(app)
    path = "/topics/orders/messages"

    pages: list[dict[str, Any]] = []
    for message_id in ids:
        cursor: dict[str, str] = {}
        while True:
            page = (await client.get(path, params={"key": message_id} | cursor)).json()
            pages.append(page)
            if page["next_cursor"] is None:
                break
            cursor = {"cursor": page["next_cursor"]}
    (tmp_path / "tier").rename(tmp_path / "away")
    tiering_of(app).cache._files.clear()
    first = await client.get(path, params={"key": ids[0]})
    refused = await client.get(path, params={"key": ids[0], "cursor": first.json()["next_cursor"]})

    found = [one["message_id"] for page in pages for one in page["messages"]]
    assert found == ids
    assert all(page["is_complete"] == (page["next_cursor"] is None) for page in pages)
    assert (first.status_code, first.json()["messages"]) == (200, [])
    assert first.json()["is_complete"] is False
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")


async def test_the_feed_of_a_tier_that_is_away_is_refused_and_told_when_to_repeat(
    app: ServiceApp, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    await tier_and_delete(app)
    (tmp_path / "tier").rename(tmp_path / "away")

    refused = await client.get("/log", params={"from_offset": 0})
    here = broker_of(app).store.log_min_offset
    answered = await client.get("/log", params={"from_offset": here})

    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert int(refused.headers["retry-after"]) > 0
    assert answered.status_code == 200
    (tmp_path / "away").rename(tmp_path / "tier")
    assert (await client.get("/log", params={"from_offset": 0})).content
    tiering_of(app).reader.manifest = None  # as if none had ever been read
    unknown = await client.get("/log", params={"from_offset": 0})
    assert unknown.status_code == 503
    assert (await client.get("/status")).json()["log"]["begin_offset"] is None


async def test_lists_do_not_fail_because_a_time_is_unknown(
    app: ServiceApp,
    client: httpx.AsyncClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit = {"offsets": [{"topic": "orders", "queue_id": 0, "offset": 3}]}
    assert (await client.put("/groups/billing/offsets", json=commit)).is_success

    async def lists() -> list[dict[str, Any]]:
        paths = ("/topics/orders/queues", "/groups/billing/offsets", "/group-lags")
        answers = [await client.get(path) for path in paths]
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        queues, offsets, lags = (answer.json() for answer in answers)
        [total] = [one for one in lags["lags"] if one["group"] == "billing"]
        return [*queues["queues"], *offsets["offsets"], {"lag": offsets["lag"]}, total]

    before = await lists()
    assert before[0]["earliest_stored_at"]
    await tier_and_delete(app)
    (tmp_path / "tier").rename(tmp_path / "away")

    away = await lists()
    (tmp_path / "away").rename(tmp_path / "tier")
    again = await lists()

    unknown = {"earliest_stored_at": None, "oldest_unconsumed_at": None}
    assert away == [
        one | {name: unknown[name] for name in unknown if name in one} for one in before
    ]
    assert again == before
    await tiering_of(app).cache.open()
    monkeypatch.setattr(store_times, "FETCH_SECONDS", 0.0)
    tiering_of(app).cache._files.clear()
    assert (await lists())[0] == away[0], "no list waits long"


async def test_status_and_metrics_show_both_beginnings(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    await tier_and_delete(app)
    status = (await client.get("/status")).json()

    assert status["log"]["tier_min_offset"] == 0 < status["log"]["min_offset"]
    assert status["log"]["begin_offset"] == 0
    assert status["tier"]["failure"] is None
    assert status["tier"]["max_offset"] >= status["log"]["min_offset"]
    assert status["tier"]["behind_bytes"] == 0
    offsets = (await client.get("/topics/orders/queues")).json()
    assert offsets["queues"][0]["min_offset"] == 0
    metrics = (await client.get("http://localhost/metrics")).text
    assert "eruca_broker_tier_min_offset 0.0" in metrics
    assert "eruca_broker_tier_failing 0.0" in metrics


async def test_a_place_that_is_none_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="ERUCA_BROKER_TIER_URL ftp"):
        async with open_broker(tmp_path / "store", tier_url="ftp://host/tier"):
            pass


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("tier", "absolute path"),
        ("s3://key:secret@bucket/prefix", "one of @"),
        ("s3://bucket/prefix?secret_access_key=secret", "one of @"),
    ],
)
async def test_a_place_that_changes_or_has_a_secret_is_refused_without_showing_it(
    tmp_path: Path, url: str, reason: str
) -> None:
    with pytest.raises(StartError, match=reason) as refused:
        async with open_broker(tmp_path / "store", tier_url=url):
            pass
    assert "secret" not in str(refused.value)


async def test_recent_messages_are_read_before_the_first_manifest_is_known(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    await tier_and_delete(app)
    begin, end = broker_of(app).store.queues.local_range("orders", 0)
    reset = {"topic": "orders", "to": {"offset": begin}}
    assert (await client.post("/groups/billing/offsets:reset", json=reset)).is_success
    tiering_of(app).reader.manifest = None  # as if none had ever been read

    leased = await DeliveryClient(client).receive()
    many = await client.post("/pull", json={"queues": [position(0, begin)]})
    codes = [
        (await client.get(QUEUE, params={"offset": offset})).status_code
        for offset in (begin - 1, begin, end, end + 1)
    ]

    assert leased[0]["message"]["queue_offset"] == begin
    assert [one["answer"]["next_offset"] for one in many.json()["queues"]] == [end]
    assert codes == [503, 200, 200, 503]


async def test_what_is_in_the_tier_is_never_skipped_while_the_role_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two roles the parts of the former one answer."""
    meanwhile: list[tuple[int, int | str]] = []  # offsets, and the answer
    settings = {"tier_url": str(tmp_path / "tier"), "tier_upload_rate_max": 0}
    with without_log_lines():
        async with (
            roles_of_store(tmp_path / "store", **settings) as roles,
            client_of(roles.app) as client,
        ):

            async def pull() -> None:
                for offset in (0, COUNT // 2):
                    answer = await client.get(QUEUE, params={"offset": offset})
                    told = answer.json()
                    first = [one["queue_offset"] for one in told.get("messages", ())][:1]
                    meanwhile.append((offset, first[0] if first else told.get("code", "skipped")))

            opened = TierCache.open

            async def slowly(cache: TierCache) -> None:
                await pull()
                await opened(cache)
                await pull()

            async with roles.role(is_master=True):
                await fill(client)
                before = await pull_all(client)
                await tier_and_delete(roles.app)
            for is_master in (False, True):
                await pull()
                with monkeypatch.context() as during:
                    during.setattr(TierCache, "open", slowly)
                    async with roles.role(is_master=is_master):
                        assert await pull_all(client) == before

    refused = [(offset, code) for offset, code in meanwhile if code == "unavailable"]
    assert refused, "the former role had to fetch them"
    assert all(offset == code for offset, code in meanwhile if code != "unavailable")
