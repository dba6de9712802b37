"""A consume queue with small files, what is put into it, and what it then holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from eruca_broker.core.consume_queue_entry import ENTRY_SIZE, build_entries
from eruca_broker.store.files.open_files import OpenFiles
from eruca_broker.store.files.unflushed import Unflushed
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.held_entries import HeldEntries

PER_FILE = 5
FILE_SIZE = PER_FILE * ENTRY_SIZE
opened: list[OpenFiles] = []


def open_files(limit: int) -> OpenFiles:
    opened.append(OpenFiles(limit))
    return opened[-1]


def open_queue(
    root: Path,
    *,
    limit: int | None = None,
    unflushed: Unflushed | None = None,
    holding: HeldEntries | None = None,
) -> ConsumeQueue:
    return ConsumeQueue.open(
        f"{root}/orders/0",
        entries_per_file=PER_FILE,
        open_files=open_files(3),
        unflushed=Unflushed() if unflushed is None else unflushed,
        limit=limit,
        holding=holding,
    )


def put_all(queue: ConsumeQueue, first: int, last: int) -> None:
    """Put entries from *first* to *last* - 1: of records of 100 bytes, one after another."""
    for offset in range(first, last):
        queue.put(offset, 1000 + 100 * offset, 100, -offset)


def rows(queue: ConsumeQueue) -> list[tuple[int, int, int]]:
    count = queue.max_offset - queue.min_offset
    return [tuple(row) for row in queue.entries(queue.min_offset, count).tolist()]


def expected_rows(first: int, last: int) -> list[tuple[int, int, int]]:
    return [(1000 + 100 * offset, 100, -offset) for offset in range(first, last)]


def columns(first: int, last: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    offsets = np.arange(first, last, dtype=np.int64)
    return build_entries(1000 + 100 * offsets, np.full(len(offsets), 100), -offsets)


def files_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "orders" / "0").glob("*"))}
