"""The transaction checker under made-up requests: no defect, no undocumented answer, no hang."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from schemathesis import GenerationMode

from eruca_postgres.embedded import EmbeddedServer
from eruca_testing import RunningCluster
from eruca_txn_checker.core.check_ids import check_id_of
from eruca_txn_checker.projection.tables import SCHEMA
from support.forked import forked
from support.fuzzing import Known, Operation, every_operation_of, fuzz
from support.postgres import drop_schema
from support.processes import ServiceProcess
from support.waiting import until_told

pytestmark = pytest.mark.timeout(600)

IDS = [f"known-{number}" for number in range(24)]
KNOWN: Known = {
    "transaction_id": IDS,
    "check_id": [check_id_of("broker-a", name, number) for name in IDS for number in (1, 2)],
    "broker_name": ["broker-a"],
    "producer_group": ["orders"],
    "state": ["pending", "committed", "rolled_back", "parked"],
}
SETTINGS = {"PORT": "0", "TIMEOUT_SECONDS": "0", "INTERVAL_SECONDS": "0.5", "POLL_SECONDS": "0.05"}


@pytest.fixture(scope="module")
def checker(shared_server: EmbeddedServer) -> Iterator[ServiceProcess]:
    shared_server.start()
    drop_schema(shared_server.url, SCHEMA)
    with ExitStack() as stack:
        cluster = stack.enter_context(RunningCluster())
        begin_some(cluster.broker_urls["broker-a"])
        settings = {f"ERUCA_TXN_CHECKER_{name}": value for name, value in SETTINGS.items()}
        settings["ERUCA_TXN_CHECKER_NAMESRV_URLS"] = cluster.namesrv_urls[0]
        settings["DATABASE_URL"] = shared_server.url
        process = stack.enter_context(forked("eruca_txn_checker", settings))
        yield process
        assert process.stop() == 0
        assert [event for event in process.log if event.get("level") == "error"] == []


def begin_some(broker_url: str) -> None:
    """Give made-up requests something to find: transactions that nobody has decided."""
    for name in IDS:
        message = {"body": {"text": "order 17"}, "message_id": name}
        begin = {"topic": "payments", "producer_group": "orders", "message": message}
        httpx.post(f"{broker_url}/v1/transactions", json=begin).raise_for_status()


@every_operation_of("txn-checker")
def test_every_answer_is_a_documented_one(
    checker: ServiceProcess, operation: Operation, mode: GenerationMode
) -> None:
    known = KNOWN if "webhook" not in operation.label else {}  # or made-up hosts would be called
    fuzz(operation, mode, checker, known=known)


@pytest.mark.anyio
async def test_after_all_that_the_checker_still_serves(checker: ServiceProcess) -> None:
    """Runs last where tests run in order; the checker must be alive whenever it runs."""
    async with httpx.AsyncClient(base_url=checker.url) as client:
        listed = await client.get("/v1/transactions", params={"producer_group": "orders"})
        status = await until_told(
            lambda: client.get("/v1/status"), lambda answer: answer.json()["followed"]
        )

    assert listed.status_code == 200
    assert [its["broker_name"] for its in status.json()["followed"]] == ["broker-a"]
