"""Transactions whose records cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from eruca.contract.errors import RecordNotFoundError
from eruca.contract.names import OP_HALF_TOPIC
from eruca_broker.core.records.half_messages import finished_offsets
from eruca_chassis.app import ServiceApp
from support.brokers import (
    broker_of,
    client_of,
    open_broker,
    rot,
    rot_beyond_reading,
    rot_head,
    rotten_count,
)
from support.transaction_calls import act, begin, done, new, park, pull, shown

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("damage", [rot, rot_head])
async def test_a_half_message_that_has_rotted_can_only_be_rolled_back(
    app: ServiceApp, client: httpx.AsyncClient, damage: Callable[[ServiceApp, bytes], None]
) -> None:
    await done(client, (await begin(client))["transaction_id"], "rollback")
    transaction_id = (await begin(client, message={"body": {"text": "rotten"}}))["transaction_id"]
    damage(app, b"rotten")

    committed = await act(client, transaction_id, "commit")
    given_up = await act(client, transaction_id, "expire", {"checks": 0, "checker": "c"})
    with pytest.raises(RecordNotFoundError, match=transaction_id):  # its segment stays
        await broker_of(app).transaction_carrier.carry_forward(2**62)
    rolled_back = await act(client, transaction_id, "rollback")

    for refused in (committed, given_up):
        assert (refused.status_code, refused.json()["code"]) == (404, "record-not-found")
        assert "cannot be read" in refused.json()["detail"]
        assert f"txn rollback {transaction_id} " in refused.json()["fix"]
    assert rolled_back.status_code == 200
    assert await pull(client) == []
    assert finished_halves(app) == [0, 1]  # or a broker of RocketMQ's would check it
    if damage is rot:
        assert rotten_count(app) == 1  # it was not spread
    await broker_of(app).transaction_carrier.carry_forward(2**62)


def finished_halves(app: ServiceApp) -> list[int]:
    """Return the queue offsets of half messages that op messages say are done with."""
    read = broker_of(app).store.queues.read(OP_HALF_TOPIC, 0, 0, count_max=32, bytes_max=1 << 20)
    return [offset for record in read.records() for offset in finished_offsets(record.body)]


async def test_what_was_given_up_and_has_rotted_since_can_be_discarded(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    transaction_id = (await begin(client, message={"body": {"text": "rotten"}}))["transaction_id"]
    await park(client, transaction_id)
    rot_head(app, b"rotten")
    by_operator = {"by": "operator", "reason": "nobody can read it"}

    committed = await act(client, transaction_id, "commit", by_operator)
    await done(client, transaction_id, "rollback", by_operator)

    assert committed.status_code == 404
    assert (await shown(client, transaction_id))["state"] == "rolled_back"


@pytest.mark.parametrize("damage", [rot, rot_beyond_reading])
async def test_who_begins_again_what_has_rotted_is_told_so(
    app: ServiceApp, client: httpx.AsyncClient, damage: Callable[[ServiceApp, bytes], None]
) -> None:
    message = {"body": {"text": "rotten"}, "message_id": "one"}
    await begin(client, message=message)
    damage(app, b"rotten")

    again = await client.post("/transactions", json=new(message=message))

    assert (again.status_code, again.json()["code"]) == (404, "record-not-found")
    assert "is damaged" in again.json()["detail"]


@pytest.mark.parametrize("damage", [rot, rot_beyond_reading])
async def test_an_event_that_has_rotted_hides_no_other_transaction(
    app: ServiceApp, client: httpx.AsyncClient, damage: Callable[[ServiceApp, bytes], None]
) -> None:
    receipts = [await begin(client, message={"message_id": name}) for name in ("one", "two")]
    damage(app, b'{"event":"transaction_begun","transaction_id":"one"')

    first, second = (await client.get("/transactions")).json()["transactions"]

    assert (first["transaction_id"], second["transaction_id"]) == ("one", "two")
    is_told = damage is rot  # else the beginning of the half message is unknown
    assert first["half_log_offset"] == (receipts[0]["half_log_offset"] if is_told else None)
    assert second["half_log_offset"] == receipts[1]["half_log_offset"]
    shown = await client.get("/transactions/one")
    assert (shown.status_code, shown.json()["state"]) == (200, "pending")
    decided = await act(client, "one", "commit")
    assert decided.status_code == (200 if is_told else 404)
    if not is_told:
        await done(client, "one", "rollback")
        assert finished_halves(app) == []  # its own half message is unknown, too


async def test_an_event_that_has_rotted_keeps_no_broker_from_starting(tmp_path: Path) -> None:
    async with open_broker(tmp_path, segment_bytes=64 * 1024) as app, client_of(app) as client:
        assert (await client.put("/topics/payments", json={})).is_success
        for name in ("one", "two"):
            await begin(client, message={"message_id": name})
        for _ in range(4):  # else the start would read the events, and refuse the damage
            body = {"body": {"text": "x" * 20_000}}
            assert (await client.post("/topics/payments/messages", json=body)).is_success
        rot_beyond_reading(app, b'{"event":"transaction_begun","transaction_id":"one"')

    async with open_broker(tmp_path, segment_bytes=64 * 1024) as app, client_of(app) as client:
        assert (await act(client, "two", "commit")).status_code == 200


@pytest.mark.parametrize("damage", [rot, rot_beyond_reading])
async def test_a_commit_whose_message_has_rotted_is_still_one(
    app: ServiceApp, client: httpx.AsyncClient, damage: Callable[[ServiceApp, bytes], None]
) -> None:
    await begin(client, message={"body": {"text": "rotten"}, "message_id": "one"})
    first = await done(client, "one", "commit")
    damage(app, b"rotten")

    again = await done(client, "one", "commit")
    shown = (await client.get("/transactions/one")).json()

    assert (again["state"], again["repeated"]) == ("committed", True)
    assert again["message"] == (first["message"] if damage is rot else None)
    assert shown["state"] == "committed"


@pytest.mark.parametrize("damage", [rot, rot_beyond_reading])
async def test_a_transaction_whose_parking_has_rotted_is_parked_without_a_reason(
    app: ServiceApp, client: httpx.AsyncClient, damage: Callable[[ServiceApp, bytes], None]
) -> None:
    await begin(client, message={"message_id": "one"})
    await done(client, "one", "expire", {"checks": 0, "checker": "c", "reason": "nobody knew"})
    damage(app, b'{"event":"transaction_parked","transaction_id":"one"')

    [parked] = (await client.get("/transactions")).json()["transactions"]

    assert parked["state"] == "parked"
    assert (parked["decision"]["by"], parked["decision"]["reason"]) == ("limit", None)
