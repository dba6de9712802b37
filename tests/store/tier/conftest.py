"""A store whose closed segments the tests bring into a tier."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.stores import without_log_lines
from support.tiers import FaultyRepository, filled_store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def repository() -> FaultyRepository:
    return FaultyRepository()


@pytest.fixture
def segment_count() -> int:
    """Return how many segments the store's queues lie across."""
    return 4


@pytest.fixture
async def store(
    tmp_path: Path, clock: ManualClock, segment_count: int
) -> AsyncIterator[MessageStore]:
    with without_log_lines():
        store = await filled_store(tmp_path / "store", clock, segment_count)
        yield store
        await store.close()
