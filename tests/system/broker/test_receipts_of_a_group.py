"""Receipts of a broker group: they name the replica that stored the message."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from eruca.contract.message_ids import decode_offset_id
from support.broker_groups import GroupOfProcesses, group_of
from support.brokers import RECORDS, batch, record

KEY: Final = "order-17"


def sent_twice(group: GroupOfProcesses, path: str, **request: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Send to replica 1 and, after it has handed over, to replica 2; return both receipts."""
    request["headers"] = {**request.get("headers", {}), "idempotency-key": KEY}
    first = group.request("POST", 1, path, **request)
    switched = group.request("POST", 1, "/v1/replication/switch", json={"to": 2})
    assert (first.status_code, switched.status_code) == (201, 200)
    assert group.await_master(other_than=1) == 2
    again = group.request("POST", 2, path, **request)
    assert (again.status_code, again.headers["idempotent-replayed"]) == (201, "true")
    return first.json(), again.json()


def host_of(group: GroupOfProcesses, replica_id: int) -> str:
    return group.url(replica_id).removeprefix("http://")


def test_a_replayed_batch_names_the_master_that_stored_it(tmp_path: Path) -> None:
    with group_of(tmp_path, 1, 2) as group:
        assert group.send("first", at=1).status_code == 201
        records = [record("orders", b"paid", queue_id=0, properties=f"UNIQ_KEY\x01{KEY}\x02")]

        first, again = sent_twice(
            group, "/v1/topics/orders/queues/0/records", content=batch(records), headers=RECORDS
        )

        assert again == first
        assert first["store_host"] == host_of(group, 1)


def test_a_replayed_message_has_the_offset_id_that_it_had(tmp_path: Path) -> None:
    with group_of(tmp_path, 1, 2) as group:
        first, again = sent_twice(
            group, "/v1/topics/orders/messages", json={"body": {"text": "paid"}}
        )

        assert again == first
        assert decode_offset_id(again["offset_message_id"]).host.text == host_of(group, 1)
