"""Send results: what is worked out when it is asked for."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pytest

from eruca.contract.message_ids import decode_offset_id, encode_offset_id
from eruca.contract.messages import BatchReceipt, SendReceipt
from eruca.contract.records import Host
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.producing.send_result import SendResults, StoredBatch, StoredMessages

QUEUE = MessageQueue("orders", "broker-a", 0)
HOST = Host.parse("10.66.51.58", 10_911)


def stored(*ids: str, queue_offset: int = 5, sizes: Sequence[int] = ()) -> StoredBatch:
    receipt = BatchReceipt(
        queue_id=0,
        queue_offset=queue_offset,
        log_offset=0x134F1F5,
        count=len(ids),
        stored_at_ms=1_700_000_000_000,
        durability="flushed",
    )
    column = struct.pack(f">{len(ids)}I", *(sizes or [100] * len(ids)))
    return StoredBatch(ids, QUEUE, receipt, column, HOST)


def test_a_result_tells_the_offset_id_and_the_time() -> None:
    (result,) = stored("ID").results()

    assert result.offset_message_id == "0A42333A00002A9F000000000134F1F5"
    assert result.stored_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def test_another_replica_may_have_stored_the_batch() -> None:
    """The receipt names it; its addresses may be larger than the sent record has room for."""
    batch = stored("a", "b", sizes=[100, 130])
    receipt = msgspec.structs.replace(batch.receipt, store_host="[::1]:10911")
    results = msgspec.structs.replace(batch, receipt=receipt).results()

    assert [result.store_host for result in results] == 2 * [Host.parse("::1", 10_911)]
    assert results[1].log_offset - results[0].log_offset == 112
    assert decode_offset_id(results[1].offset_message_id).host == Host.parse("::1", 10_911)


@pytest.mark.parametrize("replayed", [False, True])
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("store_host", [None, "[::1]:10911"])
def test_the_result_of_one_message_is_that_of_the_first_of_two(
    store_host: str | None, copies: int, *, replayed: bool
) -> None:
    one, two = (
        msgspec.structs.replace(
            batch,
            receipt=msgspec.structs.replace(batch.receipt, store_host=store_host, copies=copies),
            replayed=replayed,
        )
        for batch in (stored("a"), stored("a", "b"))
    )

    assert one.results() == two.results()[:1]


def test_a_delayed_message_has_the_offset_id_of_its_receipt() -> None:
    host = Host.parse("10.0.0.9", 1)
    receipt = SendReceipt(
        topic="orders",
        broker_name="broker-a",
        queue_id=0,
        queue_offset=None,
        log_offset=77,
        message_id="ID",
        offset_message_id=encode_offset_id(host, 77),
        stored_at="2026-11-21T08:00:00Z",
        durability="flushed",
    )

    (result,) = StoredMessages(QUEUE, [receipt]).results()

    assert (result.store_host, result.offset_message_id) == (host, receipt.offset_message_id)


@pytest.mark.parametrize("replayed", [False, True])
@pytest.mark.parametrize("copies", [1, 3])
def test_a_result_tells_the_copies_and_whether_it_is_a_replay(
    copies: int, *, replayed: bool
) -> None:
    batch = stored("a", "b")
    receipt = msgspec.structs.replace(batch.receipt, copies=copies)
    batch = msgspec.structs.replace(batch, receipt=receipt, replayed=replayed)

    for result in batch.results():
        assert (result.copies, result.replayed) == (copies, replayed)
        assert (result.deliver_at, result.recall_handle) == (None, None)


def test_the_messages_of_a_batch_lie_back_to_back() -> None:
    results = stored("a", "b", "c", sizes=[100, 130, 90]).results()

    assert [result.message_id for result in results] == ["a", "b", "c"]
    assert [result.queue_offset for result in results] == [5, 6, 7]
    assert [result.log_offset - 0x134F1F5 for result in results] == [0, 100, 230]
    assert {(r.queue, r.durability, r.store_host) for r in results} == {(QUEUE, "flushed", HOST)}


def test_many_results_are_a_sequence_in_the_callers_order() -> None:
    results = SendResults([stored("a", "d"), stored("b", "c", queue_offset=20)], [[0, 3], [1, 2]])

    assert len(results) == 4
    assert [result.message_id for result in results] == ["a", "b", "c", "d"]
    assert [result.queue_offset for result in results[1:3]] == [20, 21]
    assert results[-1].message_id == "d"
    assert results == list(results)
    assert pickle.loads(pickle.dumps(results)) == results
    assert repr(results).startswith("SendResults([SendResult(message_id='a'")


def test_no_results_are_an_empty_sequence() -> None:
    assert SendResults([], []) == []
    assert not SendResults([], [])
