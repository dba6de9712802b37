"""Batches at a position of a lane: stored one after the other, or not at all."""

from __future__ import annotations

from typing import Final

import httpx
import pytest

from eruca.contract.wire import LanePosition, with_position
from eruca_broker.store.log.commit_log import CommitLog
from eruca_chassis.app import ServiceApp
from support.brokers import RECORDS, batch, broker_of, record

pytestmark = pytest.mark.anyio

PATH: Final = "/topics/orders/queues/1/records"
LANE: Final = b"a lane.."


def body(number: int, *, topic: str = "orders", count: int = 1) -> bytes:
    return batch([record(topic, b"%d" % number, queue_id=1)] * count)


async def send(
    client: httpx.AsyncClient, number: int, epoch: int, sequence: int, *, content: bytes = b""
) -> httpx.Response:
    position = LanePosition(LANE, epoch, sequence)
    sent = b"".join(with_position(content or body(number), position))
    return await client.post(PATH, content=sent, headers=RECORDS)


async def stored(client: httpx.AsyncClient) -> list[str]:
    answer = await client.get("/topics/orders/queues/1/messages", params={"offset": 0})
    return [message["body"]["text"] for message in answer.json()["messages"]]


async def test_batches_of_a_lane_are_stored_in_their_order(client: httpx.AsyncClient) -> None:
    for number in range(3):
        answer = await send(client, number, 1, number)
        assert (answer.status_code, answer.json()["queue_offset"]) == (201, number)

    assert await stored(client) == ["0", "1", "2"]


async def test_a_batch_after_a_missing_one_is_refused(client: httpx.AsyncClient) -> None:
    await send(client, 0, 1, 0)

    refused = await send(client, 2, 1, 2)

    assert (refused.status_code, refused.json()["code"]) == (409, "lane-gap")
    assert refused.json()["fix"]
    assert await stored(client) == ["0"]


@pytest.mark.parametrize("count", [1, 30])
async def test_what_follows_a_malformed_batch_is_refused(
    client: httpx.AsyncClient, count: int
) -> None:
    await send(client, 0, 1, 0)
    malformed = await send(client, 1, 1, 1, content=body(1, topic="others", count=count))
    assert (malformed.status_code, malformed.json()["code"]) == (400, "malformed-records")

    refused = await send(client, 2, 1, 2)

    assert refused.json()["code"] == "lane-gap"
    assert (await send(client, 1, 2, 0)).status_code == 201
    assert (await send(client, 2, 2, 1)).status_code == 201
    assert await stored(client) == ["0", "1", "2"]


async def test_what_follows_a_batch_that_could_not_be_written_is_refused(
    app: ServiceApp, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(client, 0, 1, 0)
    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "write", _failing)
        failed = await send(client, 1, 1, 1)
    assert failed.status_code == 503
    await broker_of(app).store.upkeep.probe_disk()

    refused = await send(client, 2, 1, 2)

    assert refused.json()["code"] == "lane-gap"
    assert (await send(client, 1, 2, 0)).status_code == 201
    assert await stored(client) == ["0", "1"]


def _failing(*_: object) -> None:
    raise OSError(28, "No space left on device")


async def test_a_position_and_an_idempotency_key_exclude_each_other(
    client: httpx.AsyncClient,
) -> None:
    sent = b"".join(with_position(body(0), LanePosition(LANE, 1, 0)))

    refused = await client.post(PATH, content=sent, headers={**RECORDS, "Idempotency-Key": '"k"'})

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/header/idempotency-key"
    assert (await client.get("/topics/orders/queues")).status_code == 404


@pytest.mark.parametrize("size", [4, 16, 31])
async def test_a_truncated_position_is_malformed(client: httpx.AsyncClient, size: int) -> None:
    sent = b"".join(with_position(body(0), LanePosition(LANE, 1, 0)))[:size]

    refused = await client.post(PATH, content=sent, headers=RECORDS)

    assert (refused.status_code, refused.json()["code"]) == (400, "malformed-records")
