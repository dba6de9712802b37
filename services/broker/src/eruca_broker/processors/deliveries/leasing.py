"""Choose messages to lease: one look at a topic's queues, and the events that it leads to.

All of it happens in the group's turn, so nothing changes between the look and its record. Queues
take turns in being examined first. A queue that a member has locked is skipped. A queue may fail to
be read, or lack messages that are in the log. It does not block requests for the others. If the
others have no messages, the request gets an error, because "empty" might be false.

Messages that the filter excludes are passed over and count as finished. That alone is recorded when
a request ends without messages, not at each look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from eruca.contract.deliveries import EmptyBecause
from eruca.contract.errors import UnavailableError
from eruca.contract.limits import PULL_SIZE_MAX
from eruca.contract.records import Record
from eruca_broker.core.consuming.lease_choice import Choice, ChoiceLimits, choose
from eruca_broker.core.consuming.message_filter import MessageFilter
from eruca_broker.core.damage import Damage
from eruca_broker.core.state.group_state import Group, Queue
from eruca_broker.core.state.lease_events import DeliveriesLeased, LeasedMessage
from eruca_broker.core.state.leases import QueueLeases
from eruca_broker.processors.deliveries.letters import DeadDelivery
from eruca_broker.processors.deliveries.reads import (
    READ_COUNT,
    DeliveryReader,
    LookAhead,
    order_key_of,
)
from eruca_broker.store.message_store import MessageStore

_TURNS_MAX: Final = 10_000  # groups and topics whose turn of queues is remembered


@dataclass(frozen=True, slots=True)
class Wanted:
    """The parameters of a request."""

    topic: str
    filter: MessageFilter
    count_max: int
    invisible_ms: int


@dataclass(frozen=True, slots=True)
class LeaseLimits:
    """The limits of unfinished messages."""

    per_queue: int  # of one group
    of_all: int  # of all groups; beyond it, each has one of a queue


class Leased(NamedTuple):
    """A message that is about to be handed out."""

    queue: Queue
    offset: int
    attempt: int
    record: Record | Damage


class QueueChange(NamedTuple):
    """The result of a look in one queue."""

    event: DeliveriesLeased  # without its dead letters
    dead: list[DeadDelivery]


@dataclass(slots=True)
class Handful:
    """The result of a look."""

    changes: list[QueueChange] = field(default_factory=list)
    leased: list[Leased] = field(default_factory=list)
    empty_because: EmptyBecause = "empty"  # raised if nothing is leased
    due_at_ms: int | None = None  # when an unfinished message becomes due
    is_complete: bool = True  # everything ahead has been examined
    fault: UnavailableError | None = None  # the reason why the queues may not be empty


class Scanned(NamedTuple):
    """The offset up to which a request has looked ahead in a queue without a match."""

    created_at: int  # of the topic at that time: a later one of its name has other messages
    position: int  # of the queue at that time
    end: int


class _Look(NamedTuple):
    """One look: its request, and its result."""

    group: Group
    wanted: Wanted
    scanned: dict[Queue, Scanned]
    now_ms: int
    handful: Handful


class Leasing:
    """Chooses messages to lease from this broker's queues."""

    def __init__(self, store: MessageStore, reader: DeliveryReader, limits: LeaseLimits) -> None:
        self._store = store
        self._limits = limits
        self._reader = reader
        self._dead_size_max = store.segment_bytes // 4  # bytes of dead letters in one write
        self._turns: dict[tuple[str, str], int] = {}

    def look(
        self,
        group: Group,
        wanted: Wanted,
        scanned: dict[Queue, Scanned],
        *,
        now_ms: int,
        is_last: bool,
    ) -> Handful:
        """Choose messages for one request, in the group's turn; nothing is recorded yet.

        Args:
            group: The requesting group; its start is settled in every queue of the topic.
            wanted: The request, for a topic that may be read.
            scanned: The offsets that the request has examined already; updated.
            now_ms: The wall clock.
            is_last: Whether the request ends with this look, whatever its result.
        """
        handful = Handful()
        look = _Look(group, wanted, scanned, now_ms, handful)
        if not group.settings.consume_enabled:
            handful.empty_because = "paused"
            return handful
        choices: list[Choice] = []
        faults: list[UnavailableError] = []
        for queue in self._queues_in_turn(group.name, wanted.topic):
            if len(handful.leased) >= wanted.count_max:
                break
            if queue in group.locks:
                continue
            try:
                choices.append(self._look_at(look, queue))
            except UnavailableError as fault:
                faults.append(fault)
                continue
            if (lag := self._store.queues.lag_of(*queue)) is not None:
                faults.append(lag)
        assert len(handful.leased) <= wanted.count_max, "nobody has asked for the last one"
        if not (is_last or handful.leased):
            handful.changes = [change for change in handful.changes if change.event.finished]
        if not (choices or faults):
            handful.empty_because = "paused"
        elif any(choice.is_throttled for choice in choices):
            handful.empty_because = "throttled"
        elif any(choice.is_blocked for choice in choices):
            handful.empty_because = "blocked"
        elif faults and not handful.leased:
            handful.fault = faults[0]
        return handful

    def _look_at(self, look: _Look, queue: Queue) -> Choice:
        known = self._known(look.group, queue)
        lowest, _ = self._store.queues.range_for(*queue, known.position)
        begin = max(known.position, lowest)
        created_at = self._store.state.topics[queue[0]].created_at
        before = look.scanned.get(queue)
        if before is not None and before[:2] == (created_at, known.position):
            begin = max(begin, before.end)
        is_ordered = look.group.settings.ordered
        count = look.wanted.count_max - len(look.handful.leased)
        found = self._reader.look_ahead(
            queue, begin, look.wanted.filter, count=READ_COUNT if is_ordered else count
        )
        if not found.ahead.offsets:
            look.scanned[queue] = Scanned(created_at, known.position, found.ahead.end)
            look.handful.is_complete &= found.is_complete
        choice = self._choose(look, queue, known, found, count=count)
        dead = self._dead(queue, known, choice)
        if sum(one.size for one in dead) > self._dead_size_max:
            choice = self._choose(look, queue, known, found, count=1)
            dead = self._dead(queue, known, choice)
        leased = self._taken(look, queue, choice, found)
        room = PULL_SIZE_MAX - sum(one.record.size for one in look.handful.leased)
        fitting = _fitting(leased, room, at_least=0 if look.handful.leased else 1)
        if fitting < len(leased):
            choice = self._choose(look, queue, known, found, count=fitting)
            dead = self._dead(queue, known, choice)
            leased = self._taken(look, queue, choice, found)
        look.handful.leased += leased
        self._note(look, queue, known, choice, dead)
        # Also of a group that was ordered: it may be ordered again, and the topic may be another
        # one by then.
        self._reader.forget_keys(look.group.name, queue, known.unfinished)
        return choice

    def _choose(
        self, look: _Look, queue: Queue, known: QueueLeases, found: LookAhead, *, count: int
    ) -> Choice:
        def order_key(offset: int) -> str | None:
            record = found.records.get(offset)
            if record is not None:
                return order_key_of(record)
            return self._reader.sharding_key(look.group.name, queue, offset)

        room = max(self._limits.of_all - self._store.state.leases.unfinished_count, 0)
        # One is handed out in any case. Abandoned groups keep their unfinished messages until they
        # are deleted, and must not stop all others.
        unfinished_max = max(len(known.unfinished) + room, 1)
        return choose(
            known,
            found.ahead,
            ChoiceLimits(
                count_max=count,
                unfinished_max=min(self._limits.per_queue, unfinished_max),
                attempts_max=look.group.settings.retries_max + 1,
            ),
            now_ms=look.now_ms,
            min_offset=self._store.queues.range_for(*queue, known.committed_offset)[0],
            order_key=order_key if look.group.settings.ordered else None,
        )

    def _taken(self, look: _Look, queue: Queue, choice: Choice, found: LookAhead) -> list[Leased]:
        """Return the chosen messages with their records, except those that retention deleted."""
        taken = []
        for offset, attempt in list(choice.leased):
            record = found.records.get(offset) or self._reader.message(queue, offset)
            if record is None:
                choice.leased.remove((offset, attempt))
                choice.gone.append(offset)
                look.handful.is_complete = False  # there may be others in its place
            else:
                taken.append(Leased(queue, offset, attempt, record))
        return taken

    def _dead(self, queue: Queue, known: QueueLeases, choice: Choice) -> list[DeadDelivery]:
        raws = ((offset, self._reader.raw(queue, offset)) for offset in choice.dead)
        return [
            DeadDelivery(queue, raw, known.unfinished[offset].attempt)
            for offset, raw in raws
            if raw is not None
        ]

    def _note(
        self,
        look: _Look,
        queue: Queue,
        known: QueueLeases,
        choice: Choice,
        dead: list[DeadDelivery],
    ) -> None:
        due_at_ms = known.next_due_at(look.now_ms)
        if due_at_ms is not None:
            look.handful.due_at_ms = min(due_at_ms, look.handful.due_at_ms or due_at_ms)
        finished = [*choice.gone, *choice.dead]
        if choice.leased or finished or choice.position > known.position:
            event = DeliveriesLeased(
                look.group.name,
                *queue,
                known.position,
                choice.position,
                look.now_ms + look.wanted.invisible_ms,
                [LeasedMessage(offset, attempt) for offset, attempt in choice.leased],
                choice.overtaken,
                finished,
            )
            look.handful.changes.append(QueueChange(event, dead))

    def _known(self, group: Group, queue: Queue) -> QueueLeases:
        known = self._store.state.leases.of_queue(group.name, queue)
        if known is None:
            position = group.position(queue)
            assert position is not None, queue
            known = QueueLeases(position)
        return known

    def _queues_in_turn(self, group: str, topic: str) -> Iterator[Queue]:
        queue_count = self._store.state.topics[topic].read_queue_count
        if len(self._turns) > _TURNS_MAX:
            self._turns.clear()
        first = self._turns.get((group, topic), 0)
        self._turns[group, topic] = (first + 1) % queue_count
        for step in range(queue_count):
            yield topic, (first + step) % queue_count


def _fitting(leased: Sequence[Leased], room: int, *, at_least: int) -> int:
    """Return the number of leading messages of *leased* that fit into *room* bytes."""
    for index, one in enumerate(leased):
        room -= one.record.size
        if room < 0 and index >= at_least:
            return index
    return len(leased)
