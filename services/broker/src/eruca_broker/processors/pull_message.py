"""Pulling: read messages from a position in one queue or many, and wait for them if necessary.

Only a pull at the end of its queue (``no_new_message``) is held. Every other answer requires an
action of the client. The first arrival that passes its filter wakes a held pull, which reads once
more and returns the result.

Source: RocketMQ 5.3, ``PullMessageProcessor``, ``PullRequestHoldService``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from eruca.contract.errors import NotMasterError, UnavailableError, ValidationError, errors_at
from eruca.contract.wire import PullStatus
from eruca_broker.core.consuming.held_pulls import Examined, Position
from eruca_broker.core.consuming.message_filter import MessageFilter
from eruca_broker.processors.held_requests import HeldRequests
from eruca_broker.processors.topics import Topics
from eruca_broker.processors.traffic import by_topic
from eruca_broker.store.files.residency import NotInMemoryError
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.pulling.property_scan import SCAN_WORK_MAX
from eruca_broker.store.pulling.queue_read import QueueRead
from eruca_broker.store.reading.cold_reads import AHEAD_SIZE


class PullCounts:
    """Counters of pulls since the start."""

    __slots__ = ("by_topic", "bytes", "held", "messages", "requests")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0  # of records
        self.by_topic = by_topic()
        self.requests = 0
        self.held = 0  # requests that were held


@dataclass(frozen=True, slots=True)
class PullLimits:
    """The limits of an answer, and of the wait for it."""

    count_max: int
    bytes_max: int  # of records; the first message is always returned
    wait_seconds: float


class QueuePull(NamedTuple):
    """One queue of a pull."""

    topic: str
    queue_id: int
    offset: int
    filter: MessageFilter
    include_system: bool = False  # whether the topic may be one that the system keeps for itself


class Section(NamedTuple):
    """The result from one queue of a pull of many."""

    place: int  # index of the queue in the request's list, from 0
    read: QueueRead


class Puller:
    """Reads queues of this broker."""

    def __init__(self, store: MessageStore, topics: Topics, held: HeldRequests) -> None:
        self.counts = PullCounts()
        self._store = store
        self._topics = topics
        self._held = held

    def pull(self, queue: QueuePull, limits: PullLimits, reader: str) -> QueueRead | None:
        """Return the messages of *queue* from its offset on; None if the request must wait.

        Args:
            queue: The queue.
            limits: The limits of the answer.
            reader: Pays for what is not in memory; see ``store.cold_reads``.

        Raises:
            PostponedError: They are not in memory.
            TopicNotFoundError, QueueNotFoundError, PermissionDeniedError: It cannot be read.
            NotMasterError, NotMasterForSureError: Only the master knows what is at the offset.
        """
        read = self._read_one(queue, limits, reader)
        if read.status is PullStatus.NO_NEW_MESSAGE and self._may_wait(limits):
            return None
        self._count(queue.topic, read)
        self.counts.requests += 1
        return read

    def pull_after(
        self, position: Position, queue: QueuePull, limits: PullLimits, reader: str
    ) -> QueueRead:
        """Return the messages of *queue* after a wait that has moved *position*.

        Raises:
            PostponedError: They are not in memory.
            TopicNotFoundError, QueueNotFoundError, PermissionDeniedError: It can no longer be read.
        """
        moved = queue._replace(offset=position.offset)
        read = self._read_one(moved, limits, reader)
        self._count(queue.topic, read)
        self.counts.requests += 1
        return read

    def pull_many(
        self, queues: Sequence[QueuePull], limits: PullLimits, reader: str
    ) -> list[Section] | None:
        """Return the messages of *queues*, without queues that have nothing new.

        The limits apply to the whole answer. They are divided evenly among the queues that have
        messages, and so is the cost of filters on properties. If no room is left for a queue, it is
        not in the answer, and the next pull gets it. So does a queue whose messages are not in
        memory while others have messages: they are read meanwhile. None: all are at their ends, and
        the request must wait.

        Raises:
            PostponedError: Nothing of the answer is in memory.
            ValidationError: A queue occurs twice.
            TopicNotFoundError, QueueNotFoundError, PermissionDeniedError: One cannot be read;
                ``errors`` points at each such queue.
        """
        _check_distinct(queues)
        sections = self._read_many(queues, limits, reader)
        if not sections and self._may_wait(limits):
            return None
        self.counts.requests += 1
        return sections

    def pull_many_after(
        self,
        positions: Sequence[Position],
        queues: Sequence[QueuePull],
        limits: PullLimits,
        reader: str,
    ) -> list[Section]:
        """Return the messages of *queues* after a wait that has moved *positions*.

        Raises:
            PostponedError: Nothing of the answer is in memory.
            TopicNotFoundError, QueueNotFoundError, PermissionDeniedError: One can no longer be
                read.
        """
        moved = [q._replace(offset=p.offset) for q, p in zip(queues, positions, strict=True)]
        sections = self._read_many(moved, limits, reader, asked=queues)
        self.counts.requests += 1
        return sections

    def hold(
        self, positions: list[Position], limits: PullLimits, wake: Callable[[], None]
    ) -> Callable[[], None]:
        """Call *wake* once there is something at *positions*, or after the maximum wait.

        Returns the function to call if the client disconnects meanwhile.

        Raises:
            OverloadedError: The maximum of held requests is reached.
        """
        pull = self._held.hold(positions, limits.wait_seconds, wake)
        self.counts.held += 1
        return partial(self._held.release, pull)

    def _may_wait(self, limits: PullLimits) -> bool:
        return limits.wait_seconds > 0 and not self._held.is_closed

    def _read_one(self, queue: QueuePull, limits: PullLimits, reader: str) -> QueueRead:
        read = partial(self._read, queue, limits.count_max, limits.bytes_max)
        return self._store.cold.attempt(reader, read, ahead=AHEAD_SIZE)

    def _read(
        self,
        queue: QueuePull,
        count_max: int,
        bytes_max: int,
        scan_work_max: int = SCAN_WORK_MAX,
    ) -> QueueRead:
        self._topics.for_pulling(queue.topic, queue.queue_id, include_system=queue.include_system)
        return self._store.queues.read(
            queue.topic,
            queue.queue_id,
            queue.offset,
            count_max=count_max,
            bytes_max=bytes_max,
            tag_codes=queue.filter.tag_codes,
            sql92=queue.filter.sql92,
            scan_work_max=scan_work_max,
        )

    def _read_many(
        self,
        queues: Sequence[QueuePull],
        limits: PullLimits,
        reader: str,
        asked: Sequence[QueuePull] | None = None,
    ) -> list[Section]:
        """Read all queues once; *asked* has the offsets that the client knows, if they differ."""
        read = partial(self._read_with_news, queues, asked or queues, limits, reader)
        sections = self._store.cold.attempt(reader, read, ahead=AHEAD_SIZE)
        for place, section in sections:
            self._count(queues[place].topic, section)
        return sections

    def _read_with_news(
        self,
        queues: Sequence[QueuePull],
        asked: Sequence[QueuePull],
        limits: PullLimits,
        reader: str,
    ) -> list[Section]:
        """Read the queues that have something new; if nothing of them is in memory, raise that."""
        self._topics.check_for_pulling(queues)
        with_news = []
        faults: dict[int, UnavailableError] = {}
        for index, queue in enumerate(queues):
            try:
                end = self._store.queues.local_range(queue.topic, queue.queue_id)[1]
            except UnavailableError as error:
                faults[index] = error
                continue
            if queue.offset != end or asked[index].offset != queue.offset:
                with_news.append(index)
            elif (lag := self._store.queues.lag_of(queue.topic, queue.queue_id)) is not None:
                faults[index] = lag
        sections = []
        cold: list[NotInMemoryError] = []
        count, size, work = limits.count_max, limits.bytes_max, SCAN_WORK_MAX
        for done, index in enumerate(with_news):
            if count <= 0 or size <= 0:
                break
            share = len(with_news) - done
            try:
                read = self._read(
                    queues[index], -(-count // share), -(-size // share), work // share
                )
            except NotMasterError:
                raise  # the master answers for all of them
            except UnavailableError as error:
                faults[index] = error
                continue
            except NotInMemoryError as error:
                cold.append(error)
                continue
            count -= read.count
            size -= read.size
            work = max(work - read.scan_work, 0)
            sections.append(Section(index, read))
        if cold and not sections:
            raise cold[0]
        for one in cold:
            self._store.cold.begin(reader, one, ahead=AHEAD_SIZE)
        if faults and not sections:  # else the answer shows them at the end of the wait
            raise _unreadable(faults)
        return sections

    def _count(self, topic: str, read: QueueRead) -> None:
        counts = self.counts
        counts.messages += read.count
        counts.bytes += read.size
        if read.count:
            counts.by_topic.add(topic, read.count, read.size)


def examine(store: MessageStore, position: Position) -> Examined:
    """Tell whether a message that passes *position*'s filter is there, and where the look ended.

    A queue that cannot be read also wakes the pull: its client gets the error, and not the sender.
    """
    try:
        # Of any size: only its existence matters.
        read = store.queues.read(
            *position.queue,
            position.offset,
            count_max=1,
            bytes_max=1,
            tag_codes=position.filter.tag_codes,
            sql92=position.filter.sql92,
        )
    except UnavailableError:
        return Examined(matches=True, next_offset=position.offset)
    if read.status is PullStatus.NO_MATCHED_MESSAGE:
        # If more arrived than one look examines, the pull is woken and its answer says where it
        # ended.
        return Examined(matches=read.next_offset < read.max_offset, next_offset=read.next_offset)
    is_news = read.status is not PullStatus.NO_NEW_MESSAGE
    return Examined(matches=is_news, next_offset=position.offset)


def position_of(queue: QueuePull) -> Position:
    """Return the position at which a pull of *queue* waits."""
    return Position((queue.topic, queue.queue_id), queue.offset, queue.filter)


def _unreadable(faults: dict[int, UnavailableError]) -> UnavailableError:
    """Return the first fault, which points at all queues that have one."""
    first = next(iter(faults.values()))
    details = {index: fault.detail for index, fault in faults.items()}
    first.errors = errors_at("/body/queues", details)
    return first


def _check_distinct(queues: Sequence[QueuePull]) -> None:
    seen: set[tuple[str, int]] = set()
    for index, queue in enumerate(queues):
        if (queue.topic, queue.queue_id) in seen:
            detail = f"queue {queue.queue_id} of {queue.topic!r} is in the list already"
            raise ValidationError(
                detail, errors=[{"pointer": f"/body/queues/{index}", "detail": detail}]
            )
        seen.add((queue.topic, queue.queue_id))
