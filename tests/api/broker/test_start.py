"""Starting: what has been begun is ended, however far it has come."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from eruca_broker import app
from eruca_broker.loops.timers import TimerLoop
from eruca_broker.processors.transactions.carrying import TransactionCarrier
from eruca_broker.store.message_store import MessageStore
from support.brokers import open_broker

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("owner", "name", "fails"),
    [
        (app, "wire", Mock),
        (app, "BrokerMetrics", Mock),
        (TransactionCarrier, "carry_imported", AsyncMock),
        (TimerLoop, "start", Mock),
    ],
    ids=["wiring", "measuring", "carrying", "loops"],
)
async def test_a_start_that_fails_leaves_the_store_in_order(
    owner: object,
    name: str,
    fails: type[Mock],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[Path] = []
    close = MessageStore.close

    async def noted_close(store: MessageStore) -> None:
        await close(store)
        closed.append(store.directory)

    monkeypatch.setattr(MessageStore, "close", noted_close)
    monkeypatch.setattr(owner, name, fails(side_effect=MemoryError("no more")))

    with pytest.raises(MemoryError):
        async with open_broker(tmp_path):
            pass

    assert closed == [tmp_path]
    assert not (tmp_path / "abort").exists()
    monkeypatch.undo()
    async with open_broker(tmp_path):
        assert (tmp_path / "abort").exists()
