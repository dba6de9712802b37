"""A batch being written: one object from the append to the answer.

The writer creates it when a batch is accepted, the dispatcher reads its place from it, and ``done``
reports the outcome to the caller that appended it. Every request that stores something creates one,
so it holds no future, and nothing is copied from it on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from eruca.contract.errors import ErucaError
from eruca_broker.core.batches.batch import Batch
from eruca_broker.core.state.events import Event


@dataclass(slots=True, eq=False)
class Appended:
    """A batch that is in the log, or is about to be, with its place."""

    batch: Batch
    queue_offset: int  # of the first message
    log_offset: int  # of the first record
    store_timestamp: int  # ms since the epoch
    entries: bytearray  # for its consume queue
    done: Done | None = None
    event: Event | None = None  # the content of a control record

    def settle(self, outcome: Appended | ErucaError) -> None:
        """Report the outcome to the caller that appended it, once.

        The callback is then dropped. A group's callback refers to its batches: they would keep each
        other, with their records, until the garbage collector runs.
        """
        done, self.done = self.done, None
        if done is not None:
            done(outcome)


GroupDone: TypeAlias = Callable[[list[Appended] | ErucaError], None]
"""Called once for batches that were appended together; otherwise like :data:`Done`."""

Done: TypeAlias = Callable[[Appended | ErucaError], None]
"""Called once: with the batch in its place, as durable as promised; or with the error.

Called on the event loop's thread, in the log's order. It must not raise: others wait behind it.
"""
