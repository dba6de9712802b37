"""A real broker's store, whose log holds records of every kind in small segments."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca_broker.store.message_store import MessageStore
from support.lived_stores import CLOCK, broker_directory, settings


@pytest.fixture(scope="session", name="stored")
def stored_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's store, made once for all modules of a process."""
    return broker_directory(tmp_path_factory.mktemp("stored"), 1)


@pytest.fixture
async def source(stored: Path, tmp_path: Path) -> AsyncIterator[MessageStore]:
    """The broker's store, open."""
    directory = Path(shutil.copytree(stored, tmp_path / "source"))
    store = await MessageStore.open(directory, settings(is_replica=False), CLOCK)
    yield store
    await store.close()
