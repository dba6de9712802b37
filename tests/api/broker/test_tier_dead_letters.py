"""Dead letters in many segments of the tier: each page succeeds, and none is missed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca_broker.processors import dead_letters
from eruca_broker.processors.status import Status
from eruca_broker.store.tiering.tiering import Tiering
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, client_of, open_broker
from support.members import joined
from support.stores import without_log_lines
from support.tiers import brought_up, delete_local

pytestmark = pytest.mark.anyio
COUNT = 12
LETTERS = "/groups/billing/dead-letters"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[ServiceApp]:
    with without_log_lines():
        async with open_broker(
            tmp_path / "store", segment_bytes=64 * 1024, tier_url=str(tmp_path / "tier")
        ) as app:
            yield app


@pytest.fixture
async def client(app: ServiceApp) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a broker that has COUNT dead letters, each in a segment of the tier."""
    async with client_of(app) as client:
        await client.put("/topics/orders", json={"read_queue_count": 1, "write_queue_count": 1})
        member = await joined(client, "billing", "orders", client_id="one")
        await member.lock("orders", 0)
        for number in range(COUNT):
            texts = [f"{number}", "x" * 60_000]
            for text in texts:
                sent = await client.post("/topics/orders/messages", json={"body": {"text": text}})
                assert sent.status_code == 201, sent.text
            place = {"topic": "orders", "queue_id": 0, "queue_offset": 2 * number}
            assert (await member.send_back(place | {"delay_level": -1})).status_code == 200
        tiering, store = tiering_of(app), broker_of(app).store
        await store.upkeep.flush()
        await brought_up(tiering)
        await delete_local(store, tiering)
        assert store.queues.local_range("%DLQ%billing", 0)[0] >= COUNT - 1
        tiering.cache.size_max = 90_000  # of a segment, its head and its side object
        yield client


def tiering_of(app: ServiceApp) -> Tiering:
    tiering = app.parts[Status].tiering
    assert tiering is not None
    return tiering


async def pages(client: httpx.AsyncClient, **query: str) -> list[list[int]]:
    """Return the ids of each page of the list."""
    found: list[list[int]] = []
    while True:
        answer = await client.get(LETTERS, params=query)
        assert answer.status_code == 200, answer.text
        found.append([one["dead_letter_id"] for one in answer.json()["dead_letters"]])
        if (cursor := answer.json()["next_cursor"]) is None:
            return found
        query["cursor"] = cursor


async def redriven(client: httpx.AsyncClient, **request: Any) -> dict[int, str]:  # noqa: ANN401
    """Return the outcome of each letter of a redrive, page after page."""
    found: dict[int, str] = {}
    while True:
        answer = await client.post(f"{LETTERS}:redrive", json=request)
        assert answer.status_code == 200, answer.text
        for one in answer.json()["outcomes"]:
            assert one["dead_letter_id"] not in found
            found[one["dead_letter_id"]] = one["outcome"]
        if (cursor := answer.json()["next_cursor"]) is None:
            return found
        request["cursor"] = cursor


async def test_a_page_may_lie_in_more_segments_than_the_cache_holds(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    fetched = tiering_of(app).cache.fetched_size

    assert await pages(client) == [[*range(COUNT)]]

    assert tiering_of(app).cache.fetched_size - fetched > 6 * tiering_of(app).cache.size_max
    letter = (await client.get(f"{LETTERS}/3")).json()
    assert letter["message"]["body"]["text"] == "3"


async def test_a_page_that_takes_long_is_shorter_and_the_next_one_goes_on(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "READ_SECONDS", 0.0)

    listed = await pages(client)

    assert [one for page in listed for one in page] == [*range(COUNT)]
    assert len(listed) >= COUNT - 1
    outcomes = await redriven(client, filter={})
    assert outcomes == dict.fromkeys(range(COUNT), "redriven")
    assert await redriven(client, filter={}) == dict.fromkeys(range(COUNT), "skipped")


async def test_a_page_ends_before_what_cannot_be_read_now(
    app: ServiceApp, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    manifest = tiering_of(app).manifest
    assert manifest is not None
    segment = manifest.segments[len(manifest.segments) // 2]
    [missing] = (tmp_path / "tier").rglob(Path(segment.path).name)
    missing.rename(tmp_path / "away")

    first = await client.get(LETTERS)
    ids = [one["dead_letter_id"] for one in first.json()["dead_letters"]]
    assert ids == [*range(len(ids))]
    assert 0 < len(ids) < COUNT
    cursor = first.json()["next_cursor"]
    refused = await client.get(LETTERS, params={"cursor": cursor})
    some = await client.post(f"{LETTERS}:redrive", json={"ids": [*range(COUNT)]})

    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert [one["outcome"] for one in some.json()["outcomes"]] == [
        "redriven" if number < len(ids) else "skipped" for number in range(COUNT)
    ]
    (tmp_path / "away").rename(missing)
    assert await pages(client, cursor=cursor) == [[*range(len(ids), COUNT)]]
    left = await redriven(client, filter={})
    assert [left[number] for number in range(COUNT)] == [
        "skipped" if number < len(ids) else "redriven" for number in range(COUNT)
    ]
