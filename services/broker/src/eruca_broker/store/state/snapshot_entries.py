"""Find snapshots of the state in the queue of events, the latest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from eruca.contract.hashing import tags_code
from eruca_broker.core.state.events import SNAPSHOT_TAG
from eruca_broker.store.queues.consume_queue import ConsumeQueue

_STEP: Final = 4_096  # entries that are looked at at a time
_CODE: Final = tags_code(SNAPSHOT_TAG)


def snapshot_entries(queue: ConsumeQueue, below: int) -> Iterator[int]:
    """Yield the queue offsets less than *below* that may hold parts of snapshots, descending.

    Tags are compared by their codes, so another event may be among them.
    """
    for highest in range(below - 1, queue.min_offset - 1, -_STEP):
        lowest = max(highest - _STEP + 1, queue.min_offset)
        codes = queue.entries(lowest, highest - lowest + 1)["tags_code"]
        for row in np.flatnonzero(codes == _CODE)[::-1].tolist():
            yield lowest + row
