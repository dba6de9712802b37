"""The ends of queues in plans: only a master that is certain of its term knows them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import BrokerUnreachableError, NotMasterForSureError
from eruca_query.exports.topic_brokers import Place, TopicBrokers
from support.scripted_transport import Request, ScriptedTransport

pytestmark = pytest.mark.anyio

QUEUES = {
    "topic": "orders",
    "topic_id": "7",
    "broker_started_at": "2026-11-21T08:00:00Z",
    "queues": [
        {
            "queue_id": 0,
            "min_offset": 0,
            "max_offset": 5,
            "earliest_stored_at": "2026-11-21T08:00:00Z",
            "latest_stored_at": "2026-11-21T08:00:05Z",
        }
    ],
}


def brokers(place: Place, **headers: str) -> TopicBrokers:
    async def answer(_request: Request) -> HttpResponse:
        named = {"content-type": "application/json", **headers}
        return HttpResponse(200, named, json.dumps(QUEUES).encode())

    client = eruca.AsyncClient(
        "http://namesrv", timeout_seconds=0.2, transport=ScriptedTransport(answer)
    )
    return TopicBrokers(client, "orders", {"broker-a": place})


async def test_a_master_tells_them() -> None:
    found = await brokers(Place("http://a-1", "http://a-2")).queues(["broker-a"])

    assert [queue.max_offset for queue in found["broker-a"].queues] == [5]


@pytest.mark.parametrize("header", ["eruca-confirmed", "eruca-stale"])
async def test_another_replica_does_not(header: str) -> None:
    former = brokers(Place("http://a-1", "http://a-2"), **{header: "5"})

    with pytest.raises(NotMasterForSureError, match="broker-a: expected the answer of a master"):
        await former.queues(["broker-a"])


async def test_nor_does_it_tell_an_offset_by_time() -> None:
    former = brokers(Place("http://a-1", "http://a-2"), **{"eruca-confirmed": "5"})

    with pytest.raises(NotMasterForSureError):
        await former.offset_at("broker-a", 0, datetime(2026, 11, 21, tzinfo=UTC))


async def test_nor_does_a_standby_while_there_is_no_master() -> None:
    with pytest.raises(BrokerUnreachableError, match="broker broker-a has no master now"):
        await brokers(Place(None, "http://a-2")).queues(["broker-a"])
