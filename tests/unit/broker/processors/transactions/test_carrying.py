"""Carrying forward: in turns, and all is looked for once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import Mock

import pytest

from eruca.contract.errors import TooLargeError
from eruca.contract.limits import REASON_SIZE_MAX
from eruca_broker.core.records.half_messages import half_size_max
from eruca_broker.core.state.topic_events import TopicPut
from eruca_broker.core.state.transactions import Transactions
from eruca_broker.processors.transactions import carrying
from support.clocks import ManualClock
from support.stores import small_settings
from support.transaction_stores import TOPIC, TransactionStore
from support.waiting import turns_during

pytestmark = pytest.mark.anyio


async def test_many_transactions_are_looked_for_once_and_carried_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "CARRIED_COUNT_MAX", 3)
    settings = small_settings(segment_bytes=256 * 1024)
    broker = await TransactionStore.open(tmp_path, settings, ManualClock())
    await broker.store.change(TopicPut(TOPIC, 1, 1, "rw"))
    for number in range(20):
        await broker.begin(f"t-{number}")
    end = broker.store.log_max_offset
    before = Mock(side_effect=broker.store.state.transactions.before)
    monkeypatch.setattr(Transactions, "before", lambda _, log_offset: before(log_offset))

    _, turns = await turns_during(broker.carrier.carry_forward(end))

    live = list(broker.store.state.transactions)
    assert [each.transaction_id for each in live] == [f"t-{number}" for number in range(20)]
    assert all(each.offset >= end for each in live)
    assert before.call_count == 2  # the second time it finds none
    assert turns >= 20 / 3
    await broker.store.close()


async def test_what_is_decided_while_others_are_carried_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "CARRIED_COUNT_MAX", 1)
    broker = await TransactionStore.open(tmp_path, small_settings(), ManualClock())
    await broker.store.change(TopicPut(TOPIC, 1, 1, "rw"))
    for transaction_id in ("first", "second", "third"):
        await broker.begin(transaction_id)
    end = broker.store.log_max_offset

    carrying_all = asyncio.create_task(broker.carrier.carry_forward(end))
    await asyncio.sleep(0)  # it has begun
    await broker.decide("third", "commit")
    await carrying_all

    assert [each.transaction_id for each in broker.store.state.transactions] == ["first", "second"]
    assert broker.carrier.carried_count == 2
    await broker.store.close()


async def test_the_largest_message_that_is_begun_can_be_carried_parked_and_committed(
    tmp_path: Path,
) -> None:
    broker = await TransactionStore.open(
        tmp_path, small_settings(segment_bytes=64 * 1024), ManualClock()
    )
    await broker.store.change(TopicPut(TOPIC, 1, 1, "rw"))
    ids = [f"{number}{'💶' * 254}" for number in range(3)]
    await broker.begin(ids[0], "x")
    [small] = broker.store.state.transactions
    half, _ = broker.log.message_of(small)
    size = half_size_max(broker.store.segment_bytes) - len(half) + 1
    with pytest.raises(TooLargeError, match="where segments have 65536 bytes"):
        await broker.begin(ids[1], "x" * (size + 1))

    await broker.begin(ids[1], "x" * size)
    await broker.begin(ids[2], "x" * size)
    await broker.carrier.carry_forward(broker.store.log_max_offset)
    await broker.expire(ids[1], 0)
    await broker.carrier.carry_forward(broker.store.log_max_offset)
    await broker.decide(ids[1], "commit", "operator", reason="💶" * REASON_SIZE_MAX)
    await broker.decide(ids[2], "commit", "operator", reason="💶" * REASON_SIZE_MAX)

    assert broker.store.queues.range(TOPIC, 0) == (0, 2)
    await broker.store.close()
