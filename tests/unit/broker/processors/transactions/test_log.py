"""Transactions in the log: the latest ends are known before the index has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.contract.errors import TransactionNotFoundError
from eruca_broker.core.state.topic_events import TopicPut
from eruca_broker.processors.transactions import log as transaction_log
from eruca_broker.store.projecting import index_follower
from support.clocks import ManualClock
from support.stores import small_settings
from support.transaction_stores import GROUP, TOPIC, TransactionStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_the_end_of_an_id_that_is_used_again_is_among_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_log, "RECENT_MAX", 2)
    monkeypatch.setattr(index_follower, "INDEX_DELAY_SECONDS", 3600)
    opened = await TransactionStore.open(tmp_path, small_settings(), ManualClock())
    await opened.store.change(TopicPut(TOPIC, 1, 1, "rw"))
    for transaction_id in ("again", "between"):
        await opened.begin(transaction_id)
        await opened.decide(transaction_id, "commit")
    ended = opened.log.ended("again")
    assert ended is not None

    opened.log.note_end("again", ended.log_offset)
    await opened.begin("last")
    await opened.decide("last", "commit")

    assert opened.log.ended("again") == ended
    assert opened.log.ended("between") is None  # the index will lead to it
    await opened.store.close()


async def test_an_owner_is_known_without_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_follower, "INDEX_DELAY_SECONDS", 3600)
    opened = await TransactionStore.open(tmp_path, small_settings(), ManualClock())
    await opened.store.change(TopicPut(TOPIC, 1, 1, "rw"))
    await opened.begin("pending")
    await opened.begin("decided")
    await opened.decide("decided", "rollback")

    owners = [opened.views.owner(name) for name in ("pending", "decided")]
    with pytest.raises(TransactionNotFoundError, match="'unknown'"):
        opened.views.owner("unknown")

    assert owners == [(name, TOPIC, GROUP) for name in ("pending", "decided")]
    assert opened.store._dispatcher.is_index_behind
    await opened.store.close()
