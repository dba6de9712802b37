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
from support.rocketmq_stores import SEGMENT_SIZE, Stored, write_config, write_log

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
    return open_broker(directory, ManualClock(), segment_size=SEGMENT_SIZE)


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
