"""Find snapshots of the state in the queue of events, the latest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from eruca.contract.hashing import tags_code
from eruca_broker.core.consume_queue_entry import Entries
from eruca_broker.core.state.events import SNAPSHOT_TAG
from eruca_broker.store.queues.consume_queue import ConsumeQueue

ENTRIES_PER_STEP: Final = 4_096  # entries that are looked at at a time
_CODE: Final = tags_code(SNAPSHOT_TAG)


def snapshot_entries(queue: ConsumeQueue, below: int) -> Iterator[int]:
    """Yield the queue offsets less than *below* that may hold parts of snapshots, descending.

    Tags are compared by their codes, so another event may be among them.
    """
    for highest in range(below - 1, queue.min_offset - 1, -ENTRIES_PER_STEP):
        lowest = max(highest - ENTRIES_PER_STEP + 1, queue.min_offset)
        for row in snapshot_rows(queue.entries(lowest, highest - lowest + 1)):
            yield lowest + row


def snapshot_rows(entries: Entries) -> list[int]:
    """Return the rows of entries that may be those of parts of snapshots, the last one first."""
    rows: list[int] = np.flatnonzero(entries["tags_code"] == _CODE)[::-1].tolist()
    return rows
