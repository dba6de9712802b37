"""Pulling: from a position in one queue or many to what lies there, waiting for it if need be.

Only a pull that stands at the end of its queue (``no_new_message``) is held; every other answer
tells the client something it has to act on. A held pull is woken by the first arrival that its
filter lets pass, reads once more, and answers whatever it then finds.

Source: RocketMQ 5.3, ``PullMessageProcessor``, ``PullRequestHoldService``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from eruca.contract.errors import UnavailableError, ValidationError, errors_at
from eruca.contract.wire import PullStatus
from eruca_broker.core.consuming.held_pulls import Examined, Position
from eruca_broker.core.consuming.message_filter import MessageFilter
from eruca_broker.processors.held_requests import HeldRequests
from eruca_broker.processors.topics import Topics
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.property_scan import SCAN_WORK_MAX
from eruca_broker.store.queue_reader import QueueRead


class PullCounts:
    """Counters of pulls since the start."""

    __slots__ = ("bytes", "held", "messages", "requests")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0  # of records
        self.requests = 0
        self.held = 0  # requests that had to wait


@dataclass(frozen=True, slots=True)
class PullLimits:
    """The limits of an answer, and of the wait for it."""

    count_max: int
    bytes_max: int  # of records; the first message always comes
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

    place: int  # of the queue in the request's list, from 0
    read: QueueRead


class Puller:
    """Reads queues of this broker."""

    def __init__(self, store: MessageStore, topics: Topics, held: HeldRequests) -> None:
        self.counts = PullCounts()
        self._store = store
        self._topics = topics
        self._held = held

    def pull(self, queue: QueuePull, limits: PullLimits) -> QueueRead | None:
        """Return what lies in *queue* from its offset on; None where that is to be waited for.

        Raises:
            TopicNotFoundError, QueueNotFoundError, PermissionDeniedError: It cannot be read.
        """
        read = self._read(queue, limits.count_max, limits.bytes_max)
        if read.status is PullStatus.NO_NEW_MESSAGE and self._may_wait(limits):
            return None
        self._count(read)
        self.counts.requests += 1
        return read

    def pull_after(self, position: Position, queue: QueuePull, limits: PullLimits) -> QueueRead:
        """Return what lies in *queue* after a wait that has moved *position*.

        Raises:
            TopicNotFoundError, QueueNotFoundError, PermissionDeniedError: It cannot be read any
                more.
        """
        moved = queue._replace(offset=position.offset)
        read = self._read(moved, limits.count_max, limits.bytes_max)
        self._count(read)
        self.counts.requests += 1
        return read

    def pull_many(self, queues: Sequence[QueuePull], limits: PullLimits) -> list[Section] | None:
        """Return what lies in *queues*, without those that have nothing new.

        The limits are of the answer as a whole, shared out evenly among the queues that have
        something, and so is what filters over properties may cost. A queue for which no room was
        left is not in the answer; pulling again gets it.
        None where all are at their ends and that is to be waited for.

        Raises:
            ValidationError: A queue occurs twice.
            TopicNotFoundError, QueueNotFoundError, PermissionDeniedError: One cannot be read;
                ``errors`` points at each such.
        """
        _check_distinct(queues)
        sections = self._read_many(queues, limits)
        if not sections and self._may_wait(limits):
            return None
        self.counts.requests += 1
        return sections

    def pull_many_after(
        self, positions: Sequence[Position], queues: Sequence[QueuePull], limits: PullLimits
    ) -> list[Section]:
        """Return what lies in *queues* after a wait that has moved *positions*.

        Raises:
            TopicNotFoundError, QueueNotFoundError, PermissionDeniedError: One cannot be read any
                more.
        """
        moved = [q._replace(offset=p.offset) for q, p in zip(queues, positions, strict=True)]
        sections = self._read_many(moved, limits, asked=queues)
        self.counts.requests += 1
        return sections

    def hold(
        self, positions: list[Position], limits: PullLimits, wake: Callable[[], None]
    ) -> Callable[[], None]:
        """Call *wake* once there is something at *positions*, or it has been waited long enough.

        Returns what is to be called if the client leaves meanwhile.

        Raises:
            OverloadedError: As many requests as are allowed are being held.
        """
        pull = self._held.hold(positions, limits.wait_seconds, wake)
        self.counts.held += 1
        return partial(self._held.release, pull)

    def _may_wait(self, limits: PullLimits) -> bool:
        return limits.wait_seconds > 0 and not self._held.is_closed

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
        asked: Sequence[QueuePull] | None = None,
    ) -> list[Section]:
        """Read all queues once; *asked* has the offsets the client knows, where they differ."""
        self._topics.check_for_pulling(queues)
        with_news = []
        faults: dict[int, UnavailableError] = {}
        for index, queue in enumerate(queues):
            try:
                end = self._store.queues.range(queue.topic, queue.queue_id)[1]
            except UnavailableError as error:
                faults[index] = error
                continue
            if queue.offset != end or (asked is not None and asked[index].offset != queue.offset):
                with_news.append(index)
            elif (lag := self._store.queues.lag_of(queue.topic, queue.queue_id)) is not None:
                faults[index] = lag
        sections = []
        count, size, work = limits.count_max, limits.bytes_max, SCAN_WORK_MAX
        for done, index in enumerate(with_news):
            if count <= 0 or size <= 0:
                break
            share = len(with_news) - done
            try:
                read = self._read(
                    queues[index], -(-count // share), -(-size // share), work // share
                )
            except UnavailableError as error:
                faults[index] = error
                continue
            count -= read.count
            size -= read.size
            work = max(work - read.scan_work, 0)
            self._count(read)
            sections.append(Section(index, read))
        if faults and not sections:  # else they are told once nobody waits for the others
            raise _unreadable(faults)
        return sections

    def _count(self, read: QueueRead) -> None:
        self.counts.messages += read.count
        self.counts.bytes += read.size


def examine(store: MessageStore, position: Position) -> Examined:
    """Tell whether a message that *position*'s filter lets pass lies there, and up to where not.

    What cannot be read is a reason to wake, too: whoever waits is told, and not whoever sends.
    """
    try:
        # Of no matter which size: only whether there is one is asked.
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
        # Where more came than is looked at in one go, whoever waits is told how far that was.
        return Examined(matches=read.next_offset < read.max_offset, next_offset=read.next_offset)
    is_news = read.status is not PullStatus.NO_NEW_MESSAGE
    return Examined(matches=is_news, next_offset=position.offset)


def position_of(queue: QueuePull) -> Position:
    """Return where a pull of *queue* waits."""
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
