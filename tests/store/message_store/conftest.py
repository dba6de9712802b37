"""A message store for each test, and its flushes under the test's control."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.message_stores import ORDERS, Flushes, opened
from support.stores import small_settings, without_log_lines


@pytest.fixture(autouse=True)
def _without_log_lines() -> Iterator[None]:
    with without_log_lines():
        yield


@pytest.fixture
async def store(tmp_path: Path, mode: FlushMode) -> AsyncIterator[MessageStore]:
    store = await opened(tmp_path, small_settings(flush_mode=mode))
    await store.change(ORDERS)
    yield store
    if store.refusal is None:
        await store.close()


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> Flushes:
    """Simulate a fault that cannot be provoked: a disk whose flushes fail or take a given time."""
    return Flushes(monkeypatch)
