"""Send results: what is worked out when it is asked for."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pytest

from eruca.contract.messages import BatchReceipt
from eruca.contract.records import Host
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.producing.send_result import SendResults, StoredBatch

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
