"""Positions of groups: lag, who may commit, resets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from eruca.contract.records import Host
from eruca_broker.core.batches.batch import batch_of_records
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, record, rot, rot_beyond_reading
from support.group_members import TestMember

pytestmark = pytest.mark.anyio


@pytest.fixture
async def member(client: httpx.AsyncClient) -> TestMember:
    """A member that holds queue 0 of 2, with 3 messages in each; started at the earliest."""
    await client.put("/topics/orders", json={"read_queue_count": 2, "write_queue_count": 2})
    for queue_id in (0, 1):
        batch = {"messages": [{"body": {"text": "x"}}] * 3}
        await client.post(f"/topics/orders/messages?queue_id={queue_id}", json=batch)
    member = TestMember(client)
    await member.beat(start="earliest")
    await member.lock(0)
    return member


def place(topic: str, queue_id: int, offset: int) -> dict[str, object]:
    return {"topic": topic, "queue_id": queue_id, "offset": offset}


async def reset(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:  # noqa: ANN401
    body = {"topic": "orders", "to": "earliest", **fields}
    return await client.post("/groups/g/offsets:reset", json=body)


async def test_lag_and_age_count_from_the_position_or_the_start(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    await member.commit((0, 2))

    of_group = (await client.get("/groups/g/offsets")).json()
    queues = (await client.get("/topics/orders/queues")).json()["queues"]

    first, second = of_group["offsets"]
    assert (first["committed_offset"], first["lag"], first["owner"]) == (2, 1, "a")
    assert (second["committed_offset"], second["lag"], second["owner"]) == (None, 3, None)
    assert second["started"]["reason"] == "earliest"
    assert of_group["lag"] == 4
    assert of_group["oldest_unconsumed_at"] == queues[0]["earliest_stored_at"]


async def test_the_lags_of_all_groups_are_their_totals_a_page_at_a_time(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    await member.commit((0, 2))
    await client.put("/groups/idle", json={})
    await client.put("/groups/other/offsets", json={"offsets": [place("orders", 1, 3)]})

    first = (await client.get("/group-lags?limit=2")).json()
    second = (await client.get(f"/group-lags?limit=2&cursor={first['next_cursor']}")).json()

    lags = {one["group"]: one for one in (*first["lags"], *second["lags"])}
    assert list(lags) == ["g", "idle", "other"]
    assert second["next_cursor"] is None
    for name, one in lags.items():
        whole = (await client.get(f"/groups/{name}/offsets")).json()
        assert (one["lag"], one["oldest_unconsumed_at"], one["queue_count"]) == (
            whole["lag"],
            whole["oldest_unconsumed_at"],
            len(whole["offsets"]),
        )
    assert [one["lag"] for one in lags.values()] == [4, None, 0]
    assert (await client.get("/group-lags?cursor=!")).status_code == 422
    assert (await client.get("/group-lags?limit=0")).status_code == 422


async def test_commits_count_the_messages_that_they_move_past(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    for offset in (1, 3, 2):
        await member.commit((0, offset))

    metrics = (await client.get("http://localhost/metrics")).text

    sample = 'eruca_broker_group_committed_messages_total{group="g",topic="orders"}'
    assert f"{sample} 3.0" in metrics


async def test_what_is_unknown_is_null_and_what_is_consumed_has_no_age(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    await client.put("/topics/other", json={})

    unknown = (await client.get("/groups/g/offsets?topic=other")).json()
    assert (unknown["lag"], unknown["offsets"][0]["lag"]) == (None, None)

    await member.lock(1)
    await member.commit((0, 3), (1, 3))
    done = (await client.get("/groups/g/offsets")).json()
    assert (done["lag"], done["oldest_unconsumed_at"]) == (0, None)


async def test_a_queue_that_is_no_longer_read_counts_as_long_as_it_has_messages(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    fewer_queues = {"read_queue_count": 1, "write_queue_count": 1}
    assert (await client.put("/topics/orders?force=true", json=fewer_queues)).is_success

    fewer = (await client.get("/groups/g/offsets")).json()
    await client.delete("/topics/orders")
    deleted = (await client.get("/groups/g/offsets")).json()

    assert [queue["lag"] for queue in fewer["offsets"]] == [3, 3]
    assert fewer["lag"] == 6
    assert deleted["lag"] is None


async def test_how_far_groups_are_behind_is_among_the_metrics(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    await member.lock(1)
    await member.commit((0, 2), (1, 0))

    lines = (await client.get("http://localhost/metrics")).text.splitlines()

    assert 'eruca_broker_group_lag_messages{group="g",topic="orders"} 4.0' in lines
    assert "eruca_broker_group_lags_left_out 0.0" in lines
    deleted = "eruca_broker_group_deleted_unread_messages{"
    assert not [line for line in lines if line.startswith(deleted)]


@pytest.mark.parametrize("damage", [rot, rot_beyond_reading])
async def test_a_damaged_message_has_no_age_and_hides_nothing_else(
    member: TestMember,
    client: httpx.AsyncClient,
    app: ServiceApp,
    damage: Callable[[ServiceApp, bytes], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for body in ("rotten", "sound"):
        await client.post("/topics/orders/messages?queue_id=0", json={"body": {"text": body}})
    await member.lock(1)
    await member.commit((0, 3), (1, 1))
    damage(app, b"rotten")

    answer = await client.get("/groups/g/offsets")

    assert answer.status_code == 200
    first, second = answer.json()["offsets"]
    assert (first["lag"], first["oldest_unconsumed_at"]) == (2, None)
    assert (second["lag"], answer.json()["lag"]) == (2, 4)
    assert answer.json()["oldest_unconsumed_at"] == second["oldest_unconsumed_at"] is not None
    [line] = [
        line
        for line in capsys.readouterr().out.splitlines()
        if "has no readable store time" in line
    ]
    assert "orders" in line


async def test_a_queue_whose_ends_are_damaged_is_listed_without_their_times(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    await client.put("/topics/orders", json={"read_queue_count": 1, "write_queue_count": 1})
    await client.post("/topics/orders/messages?queue_id=0", json={"body": {"text": "rotten"}})
    rot(app, b"rotten")

    [queue] = (await client.get("/topics/orders/queues")).json()["queues"]

    assert (queue["min_offset"], queue["max_offset"]) == (0, 1)
    assert (queue["earliest_stored_at"], queue["latest_stored_at"]) == (None, None)


async def test_a_group_s_lag_in_its_retry_topic_counts_from_its_begin(
    member: TestMember, client: httpx.AsyncClient, app: ServiceApp
) -> None:
    retry = batch_of_records("%RETRY%g", 0, [record("%RETRY%g")])
    await broker_of(app).store.append(retry, Host.parse("127.0.0.1", 10_911))

    offsets = (await client.get("/groups/g/offsets?topic=%25RETRY%25g")).json()

    assert (offsets["lag"], offsets["offsets"][0]["committed_offset"]) == (1, None)


async def test_nobody_else_commits_where_a_member_reads(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    def commit(queue_id: int) -> dict[str, Any]:
        return {"offsets": [{"topic": "orders", "queue_id": queue_id, "offset": 1}]}

    refused = await client.put("/groups/g/offsets", json=commit(0))
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "offsets:reset" in refused.json()["fix"]
    assert (await client.put("/groups/g/offsets", json=commit(1))).status_code == 204
    await member.leave()
    assert (await client.put("/groups/g/offsets", json=commit(0))).status_code == 204


async def test_a_member_commits_what_it_holds_of_a_topic_that_has_fewer_queues_by_now(
    client: httpx.AsyncClient, member: TestMember
) -> None:
    await member.lock(1)
    await client.put("/topics/orders", json={"read_queue_count": 1, "write_queue_count": 1})

    assert (await member.commit((0, 1), (1, 2))).status_code == 204

    assert (await member.release((1, None))).status_code == 204
    offsets = (await client.get("/groups/g/offsets")).json()["offsets"]
    assert [o["committed_offset"] for o in offsets if o["topic"] == "orders"][:2] == [1, 2]


@pytest.mark.parametrize(
    "fields",
    [
        {"client_id": "a"},
        {"incarnation": "1"},
        {"client_id": "a", "incarnation": "1"},
        {"offsets": [{"topic": "orders", "queue_id": 1, "offset": 1, "token": 5}]},
    ],
)
async def test_a_commit_says_who_it_is_and_has_tokens_or_neither(
    member: TestMember, client: httpx.AsyncClient, fields: dict[str, Any]
) -> None:
    body = {"offsets": [{"topic": "orders", "queue_id": 1, "offset": 1}], **fields}

    assert (await client.put("/groups/g/offsets", json=body)).status_code == 422


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("earliest", [0, 0]),
        ("latest", [3, 3]),
        ("2000-01-01T00:00:00Z", [0, 0]),
        ("2999-01-01T00:00:00Z", [3, 3]),
        ({"offset": 2}, [2, 2]),
    ],
)
async def test_a_reset_says_from_where_to_where_and_does_it(
    member: TestMember, client: httpx.AsyncClient, to: object, expected: list[int]
) -> None:
    await member.commit((0, 1))

    dry = (await reset(client, to=to, dry_run=True)).json()
    assert [q["committed_offset"] for q in await positions(client)] == [1, None]
    done = (await reset(client, to=to)).json()

    assert [q["from_offset"] for q in done["queues"]] == [1, 0]
    assert [q["to_offset"] for q in done["queues"]] == expected
    assert dry == {**done, "dry_run": True}
    assert [q["committed_offset"] for q in await positions(client)] == expected


async def positions(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    offsets: list[dict[str, Any]] = (await client.get("/groups/g/offsets")).json()["offsets"]
    return offsets


async def test_a_reset_takes_effect_at_the_member_that_reads(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    before = (await client.get("/groups/g/members")).json()["generation"]
    await member.commit((0, 3))

    await reset(client, queue_ids=[0])

    assert (await member.commit((0, 3))).json()["code"] == "stale-lock"
    [lock] = (await member.lock(0)).json()["locks"]
    assert lock["next_offset"] == 0
    assert (await member.commit((0, 1))).status_code == 204
    assert (await client.get("/groups/g/members")).json()["generation"] > before


@pytest.mark.parametrize(
    ("fields", "status", "pointer"),
    [
        ({"to": {"offset": 4}}, 422, "/body/to/offset"),
        ({"to": "now"}, 422, "/body/to"),
        ({"to": 5}, 422, "/body/to"),
        ({"queue_ids": [0, 2]}, 404, "/body/queue_ids/1"),
        ({"queue_ids": []}, 422, "/body/queue_ids"),
        ({"topic": "unknown"}, 404, None),
    ],
)
async def test_a_reset_that_leads_nowhere_is_refused(
    member: TestMember,
    client: httpx.AsyncClient,
    fields: dict[str, Any],
    status: int,
    pointer: str | None,
) -> None:
    answer = await reset(client, **fields)

    assert answer.status_code == status
    if pointer is not None:
        assert answer.json()["errors"][0]["pointer"] == pointer
    assert (await member.commit((0, 1))).status_code == 204


async def test_a_commit_behind_a_queue_s_end_is_refused_as_a_whole_and_says_where_it_ends(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    """Otherwise messages stored up to there would be skipped, unread."""
    await member.lock(1)
    await member.commit((0, 1))

    by_member = await member.commit((0, 2), (1, 4))
    by_release = await member.release((0, 9))
    body = {"offsets": [{"topic": "orders", "queue_id": 1, "offset": 4}]}
    by_other = await client.put("/groups/other/offsets", json=body)

    for answer in (by_member, by_release, by_other):
        assert (answer.status_code, answer.json()["code"]) == (422, "validation-failed"), (
            answer.text
        )
    [fault] = by_member.json()["errors"]
    assert fault["pointer"] == "/body/offsets/1/offset"
    assert fault["detail"] == "4 is beyond the end of queue 1 of 'orders', which is 3"
    assert by_release.json()["errors"][0]["pointer"] == "/body/queues/0/offset"
    positions = (await client.get("/groups/g/offsets")).json()["offsets"]
    assert [position["committed_offset"] for position in positions] == [1, None]
    assert [position["owner"] for position in positions] == ["a", "a"]
    assert (await client.get("/groups/other")).status_code == 404


async def test_the_end_itself_may_be_committed(
    member: TestMember, client: httpx.AsyncClient
) -> None:
    assert (await member.commit((0, 3))).status_code == 204
    assert (await member.release((0, 3))).status_code == 204


@pytest.mark.parametrize("to", [5, 5.5, None, ["earliest"]])
async def test_a_place_in_no_form_there_is_is_told_the_forms(
    client: httpx.AsyncClient, to: object
) -> None:
    refused = await client.post("/groups/g/offsets:reset", json={"topic": "orders", "to": to})

    [error] = refused.json()["errors"]
    assert (refused.status_code, error["pointer"]) == (422, "/body/to")
    assert error["detail"].startswith(
        'Input should be "earliest", "latest", a time as in 2026-11-21T08:00:00Z or '
        '{"offset": 1000}; got '
    )
