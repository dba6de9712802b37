"""Transactions that RocketMQ has left undecided in a store: pending here, and decided here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca.contract.names import HALF_TOPIC, OP_HALF_TOPIC
from support.brokers import client_of, open_broker
from support.clocks import ManualClock
from support.log_model import read_log
from support.rocketmq_stores import SEGMENT_SIZE, Stored, write_config, write_log, write_on

pytestmark = pytest.mark.anyio

NOW = ManualClock().now_ms()
TOPICS = {
    "topicConfigTable": {
        "payments": {"topicName": "payments", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    }
}


def half(transaction_id: str, **properties: str) -> Stored:
    said = {
        "UNIQ_KEY": transaction_id,
        "PGROUP": "shop",
        "REAL_TOPIC": "payments",
        "REAL_QID": "1",
        "TRAN_MSG": "true",
        "TAGS": "card",
    }
    return Stored(HALF_TOPIC, 0, said | properties, transaction_id.encode())


def op(*offsets: int) -> Stored:
    return Stored(OP_HALF_TOPIC, 0, {"TAGS": "d"}, ",".join(map(str, offsets)).encode())


def store_of(directory: Path, *messages: Stored, progress: dict[str, int] | None = None) -> Path:
    write_log(directory, messages, NOW)
    write_config(directory, "topics.json", TOPICS)
    if progress is not None:
        table = {f"{topic}@CID_RMQ_SYS_TRANS": {"0": at} for topic, at in progress.items()}
        write_config(directory, "consumerOffset.json", {"offsetTable": table})
    return directory


def opened(directory: Path) -> Any:  # noqa: ANN401 - a context manager of an application
    return open_broker(directory, ManualClock(), segment_bytes=SEGMENT_SIZE)


async def pending(client: httpx.AsyncClient) -> list[str]:
    answer = await client.get("/transactions", params={"state": "pending"})
    assert answer.status_code == 200, answer.text
    return [transaction["transaction_id"] for transaction in answer.json()["transactions"]]


async def test_what_no_op_message_ends_is_pending_and_can_be_decided(tmp_path: Path) -> None:
    checked = {"TRANSACTION_CHECK_TIMES": "3", "CHECK_IMMUNITY_TIME_IN_SECONDS": "20"}
    store = store_of(tmp_path, half("A"), half("B"), op(0), half("C", **checked), half("D"))

    async with opened(store) as app, client_of(app) as client:
        assert await pending(client) == ["B", "C", "D"]
        shown = (await client.get("/transactions/C")).json()
        assert (shown["checks"], shown["check_immunity_seconds"]) == (3, 20)
        assert shown["message"]["body"]["text"] == "C"
        committed = await client.post("/transactions/B:commit", json={"producer_group": "shop"})
        assert committed.status_code == 200, committed.text
        rolled_back = await client.post("/transactions/C:rollback", json={"producer_group": "shop"})
        assert rolled_back.status_code == 200, rolled_back.text

    async with opened(store) as app, client_of(app) as client:
        assert await pending(client) == ["D"]
        answer = await client.get("/topics/payments/queues/1/messages", params={"offset": 0})
        [message] = answer.json()["messages"]
        assert (message["body"]["text"], message["tag"]) == ("B", "card")


async def test_each_opening_tells_of_a_transaction_once(tmp_path: Path) -> None:
    store = store_of(tmp_path, half("A"))
    for _ in range(3):
        async with opened(store) as app, client_of(app) as client:
            assert await pending(client) == ["A"]

    told = [record for record in read_log(store) if record.topic == HALF_TOPIC]
    assert len(told) == 2  # RocketMQ's, and the one behind the event


async def test_what_checks_stored_again_is_one_transaction(tmp_path: Path) -> None:
    store = store_of(tmp_path, half("A"), half("A"), half("B"), half("B"), op(3))

    async with opened(store) as app, client_of(app) as client:
        assert await pending(client) == ["A"]


async def test_what_rocketmq_s_checks_have_passed_is_over(tmp_path: Path) -> None:
    progress = {HALF_TOPIC: 1, OP_HALF_TOPIC: 1}
    store = store_of(tmp_path, half("A"), op(0), half("B"), half("C"), op(2), progress=progress)

    async with opened(store) as app, client_of(app) as client:
        assert await pending(client) == ["B"]


async def test_a_half_message_that_names_no_transaction_holds_up_none(tmp_path: Path) -> None:
    nameless = Stored(HALF_TOPIC, 0, {"PGROUP": "shop"})
    store = store_of(tmp_path, nameless, half("A"))

    async with opened(store) as app, client_of(app) as client:
        assert await pending(client) == ["A"]


async def begin(client: httpx.AsyncClient, *transaction_ids: str) -> None:
    for transaction_id in transaction_ids:
        message = {"message_id": transaction_id, "body": {"text": transaction_id}}
        begun = {"topic": "payments", "producer_group": "shop", "message": message}
        answer = await client.post("/transactions", json=begun)
        assert answer.status_code == 201, answer.text


async def left_pending(directory: Path, *transaction_ids: str) -> Path:
    """Have Eruca make a store in which these transactions are pending."""
    async with opened(directory) as app, client_of(app) as client:
        assert (await client.put("/topics/payments", json={})).is_success
        await begin(client, *transaction_ids)
    return directory


async def test_what_rocketmq_decides_while_it_has_the_store_is_over(tmp_path: Path) -> None:
    store = await left_pending(tmp_path, "A", "B", "C")
    committed = Stored("payments", 0, {"UNIQ_KEY": "A"}, b"A")
    write_on(store, [committed, op(0), op(2)], NOW)

    for _ in range(2):
        async with opened(store) as app, client_of(app) as client:
            assert await pending(client) == ["B"]
            again = await client.post("/transactions/A:commit", json={"producer_group": "shop"})
            assert again.status_code == 404, again.text

    assert [r.body for r in read_log(store) if r.topic == "payments"] == [b"A"]


async def test_what_rocketmq_stored_again_is_decided_by_its_latest_half(tmp_path: Path) -> None:
    store = await left_pending(tmp_path, "A", "B")
    checked = {"TRANSACTION_CHECK_TIMES": "1"}
    write_on(store, [half("A", **checked), half("B", **checked), half("B", **checked), op(3)], NOW)

    async with opened(store) as app, client_of(app) as client:
        assert await pending(client) == ["A"]
        shown = (await client.get("/transactions/A")).json()
        assert shown["checks"] == 0  # those that Eruca has granted

    ended = [int(r.body.rstrip(b",")) for r in read_log(store) if r.topic == OP_HALF_TOPIC]
    halves = [r.queue_offset for r in read_log(store) if r.topic == HALF_TOPIC]
    assert ended == [3, 2]
    assert halves[-1] == 5  # what stands for A now; RocketMQ would find it undecided


async def test_what_rocketmq_begins_while_it_has_the_store_is_pending(tmp_path: Path) -> None:
    store = await left_pending(tmp_path, "A")
    write_on(store, [half("B"), half("C"), op(2)], NOW)

    for _ in range(2):
        async with opened(store) as app, client_of(app) as client:
            assert await pending(client) == ["A", "B"]


async def test_what_rocketmq_gives_up_while_it_has_the_store_is_over(tmp_path: Path) -> None:
    store = await left_pending(tmp_path, "A", "B")
    table = {f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS": {"0": 1}}
    write_config(store, "consumerOffset.json", {"offsetTable": table})

    for _ in range(2):
        async with opened(store) as app, client_of(app) as client:
            assert await pending(client) == ["B"]


async def test_of_what_eruca_itself_wrote_last_nothing_is_taken_over(tmp_path: Path) -> None:
    store = await left_pending(tmp_path, "A", "B")
    async with opened(store) as app, client_of(app) as client:
        rolled_back = await client.post("/transactions/A:rollback", json={"producer_group": "shop"})
        assert rolled_back.status_code == 200, rolled_back.text
    before = list(read_log(store))

    async with opened(store) as app, client_of(app) as client:
        assert await pending(client) == ["B"]
    assert [r.log_offset for r in read_log(store)] == [r.log_offset for r in before]
