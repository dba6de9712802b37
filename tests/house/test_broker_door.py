"""The door of a broker with replicas knows every operation, and lets nobody change a standby."""

from __future__ import annotations

from typing import Any, Final

import pytest

from eruca_broker.processors.replication.door import OPERATIONS, Demand
from support.openapi_documents import kept_document

# They are requests for messages, by a method that can have a body.
READS_BY_POST: Final = {"pullManyQueues"}


def operations() -> dict[str, tuple[str, str]]:
    """Return method and path of each operation of the broker's document, under ``/v1``."""
    document: dict[str, Any] = kept_document("broker")
    return {
        operation["operationId"]: (method, path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if path.startswith("/v1")
    }


def test_each_operation_has_its_needs() -> None:
    assert set(OPERATIONS) == set(operations())


@pytest.mark.parametrize(
    "operation", [name for name, it in OPERATIONS.items() if it is Demand.CONFIRMED]
)
def test_a_standby_answers_reads_alone(operation: str) -> None:
    """Rule 12."""
    method, _ = operations()[operation]
    assert method == "get" or operation in READS_BY_POST


def test_replication_works_in_every_role() -> None:
    of_replication = {
        name for name, (_, path) in operations().items() if path.startswith("/v1/replication")
    }
    of_any_role = {name for name, needs in OPERATIONS.items() if needs is Demand.NOTHING}
    assert of_any_role == {"getStatus", "explainAccess", "getAccess", *of_replication} - {
        "switchMaster"
    }
