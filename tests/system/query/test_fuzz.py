"""The query service under made-up requests: no defect, no undocumented answer, no hang."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from schemathesis import GenerationMode

from eruca_testing import RunningCluster
from support.forked import forked
from support.fuzzing import Known, Operation, every_operation_of, fuzz
from support.postgres import embedded_server
from support.processes import ServiceProcess
from support.waiting import until_told

pytestmark = pytest.mark.timeout(600)

IDS = [f"known-{number}" for number in range(24)]
KNOWN: Known = {
    "topic": ["flights"],
    "broker_name": ["broker-a"],
    "message_id": IDS,
    "key": ["order-17", "order-18"],
    "tag": ["AA", "AA || UA", "*"],
    "group": ["desk"],
    "group_state": ["unread", "read"],
    "since": [0, "2020-01-01T00:00:00Z"],
    "until": [2**53, "2100-01-01T00:00:00Z"],
    "range": [["broker-a/0:0-6"], ["broker-a/1:2-4", "broker-a/0:0-2"]],
    "start": ['{"broker-a/0": 3}'],
    "columns": ["message_id,body", "queue_offset"],
}


@pytest.fixture(scope="module")
def query(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ExitStack() as stack:
        server = stack.enter_context(embedded_server())
        cluster = stack.enter_context(RunningCluster())
        fill(cluster.broker_urls["broker-a"])
        settings = {
            "ERUCA_QUERY_PORT": "0",
            "ERUCA_QUERY_NAMESRV_URLS": cluster.namesrv_urls[0],
            "DATABASE_URL": server.url,
        }
        process = stack.enter_context(forked("eruca_query", settings))
        yield process
        assert process.stop() == 0
        assert [event for event in process.log if event.get("level") == "error"] == []


def fill(broker_url: str) -> None:
    """Give made-up requests something to find: messages, and a group that has read some."""
    with httpx.Client(base_url=f"{broker_url}/v1") as broker:
        for number, message_id in enumerate(IDS):
            message = {
                "body": {"text": f"flight {number}"},
                "tag": "AA" if number % 2 else "UA",
                "keys": [f"order-{17 + number % 3}"],
                "message_id": message_id,
            }
            sent = broker.post(
                "/topics/flights/messages", params={"queue_id": number % 4}, json=message
            )
            sent.raise_for_status()
        taken = broker.post("/groups/desk/deliveries", json={"topic": "flights", "count_max": 3})
        taken.raise_for_status()


@every_operation_of("query")
def test_every_answer_is_a_documented_one(
    query: ServiceProcess, operation: Operation, mode: GenerationMode
) -> None:
    fuzz(operation, mode, query, known=KNOWN)


@pytest.mark.anyio
async def test_after_all_that_the_query_service_still_serves(query: ServiceProcess) -> None:
    """Runs last where tests run in order; the service must be alive whenever it runs."""
    async with httpx.AsyncClient(base_url=query.url) as client:
        found = await client.get(f"/v1/messages/{IDS[0]}")
        page = await client.get("/v1/messages", params={"topic": "flights", "bodies": True})
        status = await until_told(
            lambda: client.get("/v1/status"), lambda answer: answer.json()["brokers"]
        )

    assert found.json()["message"]["body"] == {"text": "flight 0"}
    assert len(page.json()["messages"]) == len(IDS)
    assert (status.json()["brokers"], status.json()["faults"]) == (["broker-a"], {})
