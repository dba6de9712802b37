"""Fire timers: deliver due messages; and carry forward those that retention would delete.

Both are one write: an event that names the timers, and behind it the messages. They are delivered
to their queues or, when carried, to the timer topic again. No crash separates the two, so each
timer is delivered exactly once: it is pending until the event is in the log, and not after.

A message cannot be delivered if its topic was deleted, its record is damaged, or no segment can
hold it with the event. Its timer ends with the same event, and is counted and logged, so that it
does not block others. A later topic of the same name is another topic.

Source: RocketMQ 5.3, ``ScheduleMessageService``, ``TimerMessageStore``. There an interrupted
delivery is repeated, and messages that outlive retention are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from eruca.contract.errors import ErucaError, RecordNotFoundError
from eruca_broker.core.batches.batch import Batch, batch_of_records
from eruca_broker.core.records.scheduled import (
    Destination,
    Wait,
    delivered,
    destination_of,
    host_bits_of,
    properties_of,
    waiting,
)
from eruca_broker.core.state.state import Topic
from eruca_broker.core.state.timers import Timer
from eruca_broker.core.state.timers_events import TimersFired, fired_record_size_max
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.clock import Clock

FIRED_COUNT_MAX: Final = 256  # in one write; it takes a few milliseconds
FIRED_SIZE_MAX: Final = 1024 * 1024  # bytes of records in one write; one alone may take more

_log = structlog.get_logger()


@dataclass(slots=True)
class TimerCounts:
    """The outcomes of timers since the start."""

    fired: int = 0
    carried: int = 0
    dropped: int = 0  # could not be delivered
    late_ms_sum: int = 0  # of the fired ones: sum of their lateness
    late_ms_max: int = 0


class _NoRoomError(Exception):
    """A record does not fit into this write."""


@dataclass(slots=True)
class _Plan:
    """One write."""

    size_max: int  # bytes of records
    first_size_max: int  # … if it is the only one
    timers: list[Timer] = field(default_factory=list)  # that end with it
    dropped: dict[Timer, str] = field(default_factory=dict)  # those of them, and why
    records: dict[tuple[Destination, int], list[bytes]] = field(default_factory=dict)
    size: int = 0  # bytes of records

    def add(self, timer: Timer, destination: Destination, record: bytes) -> None:
        if self.size + len(record) > (self.size_max if self.timers else self.first_size_max):
            raise _NoRoomError
        self.timers.append(timer)
        # Only records with the same room for hosts form a batch.
        self.records.setdefault((destination, host_bits_of(record)), []).append(record)
        self.size += len(record)

    def drop(self, timer: Timer, reason: str) -> None:
        self.timers.append(timer)
        self.dropped[timer] = reason

    @property
    def kept(self) -> list[Timer]:
        return [timer for timer in self.timers if timer not in self.dropped]

    def batches(self) -> list[Batch]:
        return [
            batch_of_records(destination.topic, destination.queue_id, some)
            for (destination, _), some in self.records.items()
        ]


class Timers:
    """Delivers due messages."""

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self.counts = TimerCounts()
        self._store = store
        self._clock = clock

    async def fire(self) -> int:
        """Deliver some due messages; return the number of ended timers. Durable on return.

        Raises:
            ErucaError: The store refuses writes now; all timers are pending again.
        """
        now_ms = self._clock.now_ms()
        if (tick_ms := self._store.tick_timestamp) is not None:
            # Otherwise a message would seem to be stored before it was due.
            now_ms = min(now_ms, tick_ms)
        taken = self._store.timers.take_due(now_ms, FIRED_COUNT_MAX)
        plan = await self._end(taken, self._deliver)
        self.counts.fired += len(plan.kept)
        for timer in plan.kept:
            late_ms = max(now_ms - timer.due_ms, 0)
            self.counts.late_ms_sum += late_ms
            self.counts.late_ms_max = max(self.counts.late_ms_max, late_ms)
        return len(plan.timers)

    async def carry_forward(self, log_offset: int) -> None:
        """Append waiting messages from before *log_offset* again, to free their segments.

        Raises:
            ErucaError: There is no room for them; messages that were not carried keep their
                segments.
        """
        rows = self._store.timers.before(log_offset)
        first = 0
        left: list[Timer] = []  # those that did not fit into the last write
        while left or first < len(rows):
            some = left
            if not left:
                some = [Timer(*row) for row in rows[first : first + FIRED_COUNT_MAX].tolist()]
                first += FIRED_COUNT_MAX
            taken = self._store.timers.take(some)
            plan = await self._end(sorted(taken, key=_id), self._carry, despite_full_disk=True)
            self.counts.carried += len(plan.kept)
            assert plan.timers or not taken, "the same would be tried for ever"
            ended = {timer.id for timer in plan.timers}
            left = [timer for timer in taken if timer.id not in ended]

    async def _end(
        self,
        taken: Sequence[Timer],
        take_in: Callable[[_Plan, Timer], None],
        *,
        despite_full_disk: bool = False,
    ) -> _Plan:
        """End held timers as far as one write goes; the others are pending again."""
        segment_bytes = self._store.segment_bytes
        plan = _Plan(min(FIRED_SIZE_MAX, segment_bytes // 4), fired_record_size_max(segment_bytes))
        pending = self._store.timers
        try:
            for timer in taken:  # they may have waited for days
                with suppress(RecordNotFoundError):
                    find = partial(self._store.log.raw, timer.id, is_proved=False)
                    await self._store.cold.read("timers", find)
            for timer in taken:
                if plan.size > plan.size_max:
                    break  # beside a very large record there is no room for another timer
                try:
                    take_in(plan, timer)
                except _NoRoomError:
                    if plan.timers:
                        break
                    plan.drop(timer, "it is too large for a segment of the log")
                except RecordNotFoundError as error:
                    plan.drop(timer, error.detail)
            ended = {timer.id for timer in plan.timers}
            assert len(ended) == len(plan.timers) <= len(taken), "a timer would end twice"
            if plan.timers:
                batches = plan.batches()
                head = TimersFired([timer.id for timer in plan.timers], plan.size)
                appended = self._store.append_group(
                    batches, head, despite_full_disk=despite_full_disk
                )
        except BaseException:
            pending.give_back(taken)
            raise
        pending.give_back(timer for timer in taken if timer.id not in ended)
        if plan.timers:
            try:
                await appended
            except ErucaError:
                pending.give_back(plan.timers)
                raise
            self._tell_dropped(plan)
        return plan

    def _deliver(self, plan: _Plan, timer: Timer) -> None:
        raw, wanted = self._read(timer)
        if wanted is None:
            plan.drop(timer, "its record has no destination")
            return
        topic = self._topic_of(timer, wanted)
        if topic is None:
            plan.drop(timer, f"topic {wanted.topic!r} has been deleted")
        elif not self._store.is_leaving(wanted.topic):  # else it is deleted in a moment
            destination = Destination(wanted.topic, topic.queue_now(wanted.queue_id))
            plan.add(timer, destination, delivered(raw, destination))

    def _carry(self, plan: _Plan, timer: Timer) -> None:
        raw, destination = self._read(timer)
        if destination is None:
            plan.drop(timer, "its record has no destination")
            return
        if self._topic_of(timer, destination) is None:
            # Carried, it would be younger than a topic of that name, which is another one.
            plan.drop(timer, f"topic {destination.topic!r} has been deleted")
            return
        wait = Wait(deliver_at_ms=timer.due_ms)
        plan.add(timer, wait.place, waiting(raw, wait, destination))

    def _topic_of(self, timer: Timer, destination: Destination) -> Topic | None:
        """Return the topic for which a timer was set, or None if that topic was deleted.

        There may be another topic of its name by now.
        """
        topic = self._store.state.topics.get(destination.topic)
        return None if topic is None or timer.id < topic.created_at else topic

    def _read(self, timer: Timer) -> tuple[memoryview, Destination | None]:
        raw = self._store.log.raw(timer.id)
        return raw, destination_of(properties_of(raw))

    def _tell_dropped(self, plan: _Plan) -> None:
        """Count and log them once they have ended: a refused write is repeated."""
        self.counts.dropped += len(plan.dropped)
        for timer, reason in plan.dropped.items():
            _log.warning("delayed message dropped", log_offset=timer.id, reason=reason)


def _id(timer: Timer) -> int:
    return timer.id
