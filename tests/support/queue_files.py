"""Consume queues with small files, filled and closed."""

from __future__ import annotations

from pathlib import Path

from eruca_broker.core.consume_queue_entry import ENTRY_SIZE
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.queue_check import QueueDigest

PER_FILE = 5
FILE_SIZE = PER_FILE * ENTRY_SIZE
LOG_END = 1_000_000
A, B, C = ("orders", 0), ("orders", 1), ("%RETRY%group", 0)


def open_queues(root: Path) -> ConsumeQueues:
    return ConsumeQueues(root / "consumequeue", entries_per_file=PER_FILE, open_files_max=3)


def fill(queues: ConsumeQueues, key: tuple[str, int], first: int, last: int) -> None:
    queue = queues.queue(*key)
    for offset in range(first, last):
        queue.put(offset, 1000 + 100 * offset, 100, offset)


def filled(root: Path) -> ConsumeQueues:
    """Return queues A (three files), B (padded at its front) and C (one entry)."""
    queues = open_queues(root)
    fill(queues, A, 0, 12)
    fill(queues, B, 7, 13)
    fill(queues, C, 0, 1)
    return queues


def closed(root: Path) -> list[QueueDigest]:
    queues = filled(root)
    queues.take_unflushed().sync()
    digests = queues.digests()
    queues.close()
    return digests


def path_of(root: Path, key: tuple[str, int], number: int = 0) -> Path:
    return root / "consumequeue" / key[0] / str(key[1]) / f"{number * FILE_SIZE:020d}"
