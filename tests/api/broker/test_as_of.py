"""Groups and transactions as of an earlier log offset, compared with the answers of that time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from eruca_broker.store.state import past_states
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, client_of, open_broker, rot
from support.group_members import TestMember
from support.stores import delete_oldest_segments
from support.tiers import brought_up, delete_local, tiering_of
from support.transaction_calls import BY_PRODUCER, act, begin, park

pytestmark = pytest.mark.anyio

FILL: Final = {"messages": [{"body": {"text": "x" * 60_000}}]}


def end_of(app: ServiceApp) -> int:
    return broker_of(app).store.visible_offset


async def as_of(client: httpx.AsyncClient, log_offset: int, path: str = "groups/g") -> Any:  # noqa: ANN401
    answer = await client.get(f"/{path}/as-of", params={"log_offset": log_offset})
    assert answer.status_code == httpx.codes.OK, answer.text
    return answer.json()


async def positions(client: httpx.AsyncClient) -> list[tuple[object, ...]]:
    found = (await client.get("/groups/g/offsets")).json()
    return [
        (*(one["topic"], one["queue_id"], one["committed_offset"]), one["max_offset"], one["owner"])
        for one in found["offsets"]
    ]


def positions_in(past: dict[str, Any]) -> list[tuple[object, ...]]:
    return [
        (*(one["topic"], one["queue_id"], one["committed_offset"]), one["max_offset"], one["owner"])
        for one in past["queues"]
    ]


async def fill(client: httpx.AsyncClient, count: int) -> None:
    for _ in range(count):
        sent = await client.post("/topics/orders/messages?queue_id=1", json=FILL)
        assert sent.is_success, sent.text


async def history_of(
    app: ServiceApp, client: httpx.AsyncClient
) -> list[tuple[int, list[tuple[object, ...]]]]:
    """Let a group live through several segments; return its positions at some log offsets."""
    seen = []
    await client.put("/topics/orders", json={"read_queue_count": 2, "write_queue_count": 2})
    member = TestMember(client)
    await member.beat(start="earliest")
    await member.lock(0, 1)
    for offset in range(1, 5):
        await fill(client, 6)
        await client.post(
            "/topics/orders/messages?queue_id=0", json={"messages": [{"body": {"text": "x"}}]}
        )
        assert (await member.commit((0, offset), (1, offset))).is_success
        seen.append((end_of(app), await positions(client)))
    await member.release((0, 4), (1, None))
    seen.append((end_of(app), await positions(client)))
    return seen


async def test_a_group_is_as_it_was_over_several_segments(tmp_path: Path) -> None:
    async with (
        open_broker(tmp_path, segment_bytes=1 << 20) as app,
        client_of(app) as client,
    ):
        seen = await history_of(app, client)

        found = [(end, await as_of(client, end)) for end, _ in seen]

        assert [(end, positions_in(past)) for end, past in found] == seen
        assert all(past["exists"] and past["unknown"] is None for _, past in found)
        begins = {past["snapshot_log_offset"] for _, past in found}
        assert len(begins) > 1  # folded from the snapshots of several segments
        assert found[-1][1]["queues"][0]["lag"] == 0
        assert (await as_of(client, end_of(app), "groups/nobody"))["exists"] is False
        # A restart folds the same log.
    async with (
        open_broker(tmp_path, segment_bytes=1 << 20) as app,
        client_of(app) as client,
    ):
        again = [(end, positions_in(await as_of(client, end))) for end, _ in seen]
        assert again == seen


async def test_what_retention_has_deleted_is_unknown_with_the_reason(tmp_path: Path) -> None:
    async with (
        open_broker(tmp_path, segment_bytes=1 << 20) as app,
        client_of(app) as client,
    ):
        seen = await history_of(app, client)
        store = broker_of(app).store
        assert await delete_oldest_segments(store, 1)

        begin = store.log_min_offset
        for log_offset in (0, begin - 1, begin):
            past = await as_of(client, log_offset)
            assert (past["exists"], past["queues"]) == (None, [])
            assert past["unknown"]
        assert "retention has deleted" in (await as_of(client, 0))["unknown"]
        last_end, last = seen[-1]
        assert positions_in(await as_of(client, last_end)) == last


async def test_what_is_only_in_the_tier_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_broker(
            tmp_path / "store",
            segment_bytes=1 << 20,
            tier_url=str(tmp_path / "tier"),
            tier_upload_rate_max=0,
        ) as app,
        client_of(app) as client,
    ):
        seen = await history_of(app, client)
        before = [(end, await as_of(client, end)) for end, _ in seen]
        begun = await as_of(client, 1)
        store, tiering = broker_of(app).store, tiering_of(app)
        await store.upkeep.flush()
        await brought_up(tiering)
        await delete_local(store, tiering)

        begin = store.log_min_offset
        assert sum(end <= begin for end, _ in seen) > 1, "most of them are in the tier"
        after = [(end, await as_of(client, end)) for end, _ in seen]
        assert [(end, positions_in(past)) for end, past in after] == seen
        assert after == before
        at_begin = await as_of(client, begin)
        assert at_begin["unknown"] is None
        assert at_begin["snapshot_log_offset"] == begin - store.segment_bytes
        assert (await as_of(client, 1)) == begun
        assert (await as_of(client, 0))["unknown"]

        async def away(*_: object) -> bytes:
            raise OSError("the folder is not mounted")

        monkeypatch.setattr(tiering.cache, "_read", away)
        await tiering.cache.open()
        tiering.cache._files.clear()
        refused = await client.get("/groups/g/as-of", params={"log_offset": begin})
        assert refused.status_code == 503, refused.text


async def test_a_deleted_topic_has_no_end_of_a_queue(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    await client.put("/topics/orders", json={"read_queue_count": 1, "write_queue_count": 1})
    member = TestMember(client)
    await member.beat(start="earliest")
    await member.lock(0)
    await client.post(
        "/topics/orders/messages?queue_id=0", json={"messages": [{"body": {"text": "x"}}] * 3}
    )
    await member.commit((0, 2))
    then = end_of(app)
    await member.leave()
    assert (await client.delete("/topics/orders")).is_success
    await client.put("/topics/orders", json={"read_queue_count": 1, "write_queue_count": 1})

    [queue] = (await as_of(client, then))["queues"]

    assert (queue["committed_offset"], queue["owner"]) == (2, "a")
    assert (queue["max_offset"], queue["lag"]) == (None, None)


async def test_a_fold_of_too_many_events_is_refused_and_says_so(
    client: httpx.AsyncClient, app: ServiceApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_states, "PAST_EVENT_COUNT_MAX", 1)
    await client.put("/groups/g", json={})
    await client.put("/groups/h", json={})

    assert "more than 1" in (await as_of(client, end_of(app)))["unknown"]


async def test_no_more_questions_wait_than_there_is_room_for(
    client: httpx.AsyncClient, app: ServiceApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_states, "WAITING_MAX", 0)

    answer = await client.get("/groups/g/as-of", params={"log_offset": end_of(app)})

    assert answer.json()["type"] == "/problems/overloaded"


async def test_a_damaged_event_makes_the_state_unknown(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    await client.put("/groups/g", json={"retries_max": 7})
    rot(app, b'"retries_max":7')

    past = await as_of(client, end_of(app))

    assert past["exists"] is None
    assert "cannot be read" in past["unknown"]


@pytest.mark.parametrize("path", ["groups/g", "transactions/t"])
async def test_a_place_that_the_log_has_not_reached_is_refused(
    client: httpx.AsyncClient, app: ServiceApp, path: str
) -> None:
    end = end_of(app)
    for given in (end + 1, 2**63 - 1, -1, 2**63, "x"):
        answer = await client.get(f"/{path}/as-of", params={"log_offset": given})
        assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY
        assert answer.json()["errors"][0]["pointer"] == "/query/log_offset"
    assert (await client.get(f"/{path}/as-of")).status_code == httpx.codes.UNPROCESSABLE_ENTITY


async def test_a_transaction_is_in_each_of_its_states(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    await client.put("/topics/payments", json={"read_queue_count": 2, "write_queue_count": 2})
    before = end_of(app)
    transaction_id = (await begin(client))["transaction_id"]
    path = f"transactions/{transaction_id}"
    pending = end_of(app)
    await act(client, transaction_id, "commit", BY_PRODUCER)
    committed = end_of(app)
    parked_id = (await begin(client))["transaction_id"]
    open_at = end_of(app)
    await park(client, parked_id)

    states = [(await as_of(client, at, path))["state"] for at in (before, pending, committed)]

    assert states == ["not_begun", "pending", "committed"]
    parked = [
        (await as_of(client, at, f"transactions/{parked_id}"))["state"]
        for at in (committed, open_at, end_of(app))
    ]
    assert parked == ["not_begun", "pending", "parked"]
    never = await as_of(client, committed, "transactions/never")
    assert never["state"] is None
    assert "retention" in never["unknown"]
