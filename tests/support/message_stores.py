"""A message store under test: opened, written to, and looked into."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from eruca.contract.records import decode_record
from eruca_broker.core.state.events import TopicPut
from eruca_broker.store.log.receipts import Receipt
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode, StoreSettings
from support.clocks import ManualClock
from support.log_model import read_log
from support.patience import PATIENCE_SECONDS
from support.stores import batch, small_settings

ORDERS = TopicPut("orders", 4, 4, "rw")
BOTH_MODES = pytest.mark.parametrize("mode", list(FlushMode))


async def opened(directory: Path, settings: StoreSettings | None = None) -> MessageStore:
    return await MessageStore.open(directory, settings or small_settings(), ManualClock())


async def send(store: MessageStore, *bodies: bytes, queue_id: int = 0) -> Receipt:
    return await store.append(batch("orders", queue_id, list(bodies), keys="k"))


def bodies(store: MessageStore, queue_id: int = 0) -> list[bytes]:
    """Return the bodies that a consumer of a queue of ``orders`` gets."""
    found = []
    low, high = store.queues.range("orders", queue_id)
    for offset in range(low, high):
        read = store.queues.read("orders", queue_id, offset, count_max=1, bytes_max=1)
        [record] = read.slices
        found.append(decode_record(record).body)
    return found


def refuse(*_: object) -> None:
    """Do what a failing disk does."""
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def found_by_key(store: MessageStore) -> list[bytes]:
    found = store.log.by_key("orders", "k", count_max=1_000, begin_ms=0, end_ms=2**62)
    return [record.body for record in reversed(found)]


def log_of(directory: Path) -> list[bytes]:
    return [record.body for record in read_log(directory) if record.topic == "orders"]


def open_files() -> set[Path]:
    """Return what this process has open, and how it is called."""
    found = list(Path("/proc/self/fd").iterdir())
    return {path.readlink() for path in found if path.is_symlink()}


class Flushes:
    """Flushes of segments of the log: each is counted when it begins, and ends once it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real = os.fdatasync
        self.failing = False
        self.count = 0
        self.may_end = threading.Event()
        self.may_end.set()
        monkeypatch.setattr("eruca_broker.store.log.segment.os.fdatasync", self._flush)

    def _flush(self, descriptor: int) -> None:
        self.count += 1
        if self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        assert self.may_end.wait(60)
        self._real(descriptor)


def is_of(descriptor: int, directory: Path) -> bool:
    return directory in Path(f"/proc/self/fd/{descriptor}").readlink().parents


class InThread:
    """A function in the place of another, that notes where it runs and can be held up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self._real = resolve_name(name)
        self.has_begun = asyncio.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.threads: set[int] = set()
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr(name, self)

    def __call__(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        self.threads.add(threading.get_ident())
        self._loop.call_soon_threadsafe(self.has_begun.set)
        self.may_go_on.wait(PATIENCE_SECONDS)
        return self._real(*arguments, **named)
