"""A batch being written: one object from the append to the answer.

The writer creates it when a batch is accepted, the dispatcher reads its place from it, and ``done``
reports the outcome to the caller that appended it. Every request that stores something creates one,
so it holds no future, and nothing is copied from it on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from eruca.contract.errors import ErucaError
from eruca_broker.core.batches.batch import Batch
from eruca_broker.core.state.events import Event
from eruca_chassis.machines import Machine


class Stage(StrEnum):
    """The stage of a batch on its way."""

    ACCEPTED = "accepted"
    WRITTEN = "written"
    FLUSHING = "flushing"
    DURABLE = "durable"
    CONFIRMED = "confirmed"
    PUBLISHED = "published"
    TAKEN_BACK = "taken back"
    FAILED = "failed"


class Act(StrEnum):
    """An act that moves batches from one stage to the next."""

    WRITE = "write"
    WRITE_FAILED = "write failed"
    FOLLOW = "follow"  # the store becomes a replica
    FLUSH = "flush begins"
    FLUSHED = "flushed"
    FLUSH_FAILED = "flush failed"
    NO_FLUSH = "no flush promised"  # async mode
    CONFIRM = "confirm"
    PUBLISH = "dispatch"


APPEND: Final = Machine(
    (Stage.ACCEPTED, Act.WRITE, Stage.WRITTEN),
    (Stage.ACCEPTED, Act.WRITE_FAILED, Stage.TAKEN_BACK),
    (Stage.ACCEPTED, Act.FOLLOW, Stage.TAKEN_BACK),
    (Stage.WRITTEN, Act.FLUSH, Stage.FLUSHING),
    (Stage.WRITTEN, Act.FLUSH_FAILED, Stage.FAILED),
    (Stage.WRITTEN, Act.NO_FLUSH, Stage.DURABLE),
    (Stage.FLUSHING, Act.FLUSHED, Stage.DURABLE),
    (Stage.FLUSHING, Act.FLUSH_FAILED, Stage.FAILED),
    (Stage.DURABLE, Act.CONFIRM, Stage.CONFIRMED),
    (Stage.CONFIRMED, Act.PUBLISH, Stage.PUBLISHED),
)
_SETTLED: Final = frozenset({Stage.PUBLISHED, Stage.TAKEN_BACK, Stage.FAILED})
_UNKNOWN: Final = frozenset({Stage.WRITTEN, Stage.FLUSHING, Stage.DURABLE})


@dataclass(slots=True, eq=False)
class Appended:
    """A batch that is in the log, or is about to be, with its place."""

    batch: Batch
    queue_offset: int  # of the first message
    log_offset: int  # of the first record
    store_timestamp: int  # ms since the epoch
    entries: bytearray  # for its consume queue; empty: it is in none
    done: Done | None = None
    event: Event | None = None  # the content of a control record
    is_amid_group: bool = False  # it is published only together with the next one
    is_copied: bool = (
        False  # of a run: its caller waits until it is durable, not until it is visible
    )
    is_foreign: bool = False  # RocketMQ wrote it, before the log's first event
    is_answered_first: bool = False  # if published alone: its caller comes before readers
    stage: Stage = Stage.ACCEPTED

    @property
    def end_offset(self) -> int:
        """Log offset after its last record."""
        return self.log_offset + self.batch.size

    def settle(self, outcome: Appended | ErucaError) -> None:
        """Report the outcome to the caller that appended it, once.

        The callback is then dropped, and a second call does nothing. A group's callback refers to
        its batches: they would keep each other, with their records, until the garbage collector
        runs.
        """
        stage = self.stage
        is_settled = stage in _SETTLED or (self.is_copied and stage is Stage.DURABLE)
        assert is_settled, f"settled while {stage}"
        done, self.done = self.done, None
        if done is not None:
            done(outcome)

    def abandon(self, error: ErucaError) -> None:
        """Tell the caller that the outcome is unknown; the batch continues without a caller."""
        assert self.stage in _UNKNOWN, f"its outcome is known: {self.stage}"
        done, self.done = self.done, None
        if done is not None:
            done(error)


def move(batches: Sequence[Appended], act: Act) -> None:
    """Move *batches*, which are all in one stage, to the next one."""
    if not batches:
        return
    stage = APPEND.step(batches[0].stage, act)
    assert batches[0].stage is batches[-1].stage, "batches of two stages are moved together"
    for appended in batches:
        appended.stage = stage


GroupDone: TypeAlias = Callable[[list[Appended] | ErucaError], None]
"""Called once for batches that were appended together; otherwise like :data:`Done`."""

Done: TypeAlias = Callable[[Appended | ErucaError], None]
"""Called once: with the batch in its place, as durable as promised; or with the error.

Called on the event loop's thread, in the log's order. It must not raise: others wait behind it.
"""
