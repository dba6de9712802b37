"""The broker under made-up requests: no defect, no undocumented answer, no hang."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from schemathesis import GenerationMode

from support.forked import forked
from support.fuzzing import Known, Operation, every_operation_of, fuzz
from support.processes import ServiceProcess

pytestmark = pytest.mark.timeout(600)

IDS = [f"known-{number}" for number in range(24)]  # of transactions, and of what waits
KNOWN: Known = {
    "topic": ["flights"],
    "queue_id": [0, 3],
    "group": ["desk"],
    "client_id": ["desk-1"],
    "producer_group": ["orders"],
    "transaction_id": IDS,
    "message_id": IDS,
}
SHARED = {"POST /v1/transactions:begin", "POST /v1/transactions:decide"}
DESTRUCTIVE = {"DELETE /v1/topics/{topic}", "DELETE /v1/groups/{group}"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    store = tmp_path_factory.mktemp("fuzz") / "store"
    options = {"PORT": "0", "STORE_DIR": str(store), "NAMESRV_URLS": ""}
    options |= {"SEGMENT_BYTES": str(8 * 1024**2)}
    with forked("eruca_broker", {f"ERUCA_BROKER_{k}": v for k, v in options.items()}) as process:
        fill(process.url)
        yield process
        assert process.stop() == 0
        assert [event for event in process.log if event.get("level") == "error"] == []


def fill(url: str) -> None:
    """Give made-up requests something to find."""
    messages = [
        {"body": {"text": f"flight {n}"}, "tag": "AA", "keys": ["order-17"]} for n in range(20)
    ]
    with httpx.Client(base_url=f"{url}/v1") as client:
        # Made-up requests may have forbidden to read or write it.
        client.put("/topics/flights", json={"permission": "rw"}).raise_for_status()
        for queue_id in range(4):
            sent = client.post(
                f"/topics/flights/messages?queue_id={queue_id}", json={"messages": messages}
            )
            assert sent.status_code == 201
        for number, message_id in enumerate(IDS):
            message = {"body": {"text": "later"}, "message_id": message_id}
            if number % 2:
                client.post("/topics/flights/messages", json=message | {"delay_seconds": 9_000})
            else:
                begin = {"topic": "flights", "producer_group": "orders", "message": message}
                client.post("/transactions", json=begin)


@every_operation_of("broker")
def test_every_answer_is_a_documented_one(
    broker: ServiceProcess, operation: Operation, mode: GenerationMode
) -> None:
    fuzz(
        operation,
        mode,
        broker,
        known={} if operation.label in DESTRUCTIVE else KNOWN,
        answers_each_item=operation.label in SHARED,
    )


def test_after_all_that_the_broker_still_serves(broker: ServiceProcess) -> None:
    """Runs last where tests run in order; the broker must be alive whenever it runs."""
    fill(broker.url)
    pulled = httpx.get(f"{broker.url}/v1/topics/flights/queues/0/messages?offset=0")
    status = httpx.get(f"{broker.url}/v1/status").json()

    assert len(pulled.json()["messages"]) >= 20
    assert (status["bytes_in_flight"], status["held_requests"]) == (0, 0)
