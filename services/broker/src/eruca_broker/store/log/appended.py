"""A batch on its way: one object from the append to the answer.

The writer makes it when a batch is accepted, the dispatcher reads where the batch lies, and whoever
appended it is told through ``done`` once that is settled. There is one for every request that
stores something, so it holds no future and nothing is copied from it on the way.
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
    """A batch that is in the log, or about to be, with its place."""

    batch: Batch
    queue_offset: int  # of the first message
    log_offset: int  # of the first record
    store_timestamp: int  # ms since the epoch
    entries: bytearray  # of its consume queue
    done: Done | None = None
    event: Event | None = None  # what the batch says, where it is a control record

    def settle(self, outcome: Appended | ErucaError) -> None:
        """Tell whoever appended it, once.

        Who is told is then forgotten: of a group that knows its batches, so that each would be
        kept by the other, records and all, until the garbage collector comes.
        """
        done, self.done = self.done, None
        if done is not None:
            done(outcome)


GroupDone: TypeAlias = Callable[[list[Appended] | ErucaError], None]
"""Told once, of batches that were appended together; otherwise like :data:`Done`."""

Done: TypeAlias = Callable[[Appended | ErucaError], None]
"""Told once: the batch as it lies, as durable as promised; or why it is not in the log.

Called on the event loop's thread, in the log's order. It must not raise: others wait behind it.
"""
