"""Carrying forward: in turns, and all is looked for once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import Mock

import pytest

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
    settings = small_settings(segment_size=256 * 1024)
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
