"""The pull consumer: reads the queues it is told to, at the pace of whoever polls.

Generated from ``eruca.aio.pull_consumer`` by ``sdk/tools/generate_sync.py``; change that one.
How it works and which threads may do what is said in :mod:`eruca.sync.portal`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from eruca.aio.pull_consumer import POLL_COUNT_DEFAULT, POLL_SECONDS_DEFAULT, AsyncPullConsumer
from eruca.sync.portal import Portal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from types import TracebackType

    from eruca.contract.errors import ErucaError
    from eruca.core.messages.message_queue import MessageQueue
    from eruca.core.messages.received_message import ReceivedMessage


class PullConsumer:
    """Reads queues; made by :meth:`eruca.Client.pull_consumer`.

    As a context manager it commits when the block ends: everything handed out, or, after an
    exception, everything but what was last handed out; what the program has committed of that
    itself stays so.
    """

    def __init__(self, portal: Portal, twin: AsyncPullConsumer) -> None:
        self._portal = portal
        self._twin = twin

    @property
    def group(self) -> str | None:
        """The group whose offsets are read and committed."""
        return self._twin.group

    @property
    def failures(self) -> dict[str, ErucaError]:
        """The brokers that do not answer just now, and how."""
        return self._twin.failures

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that are read, sorted."""
        return self._portal.call(self._twin.assignment)

    def poll(
        self, count_max: int = POLL_COUNT_DEFAULT, wait_seconds: float = POLL_SECONDS_DEFAULT
    ) -> list[ReceivedMessage]:
        """Return the next messages, those of one queue in order; none if *wait_seconds* bring none.

        Args:
            count_max: How many at most.
            wait_seconds: The time to wait for the first; 0 for only what is held ready. The first
                call waits up to 30 seconds longer while no broker is registered: it may be
                restarting.

        Raises:
            TopicNotFoundError: A topic does not exist.
            OffsetOutOfRangeError: A queue holds nothing at its position any more; seek.
            NoCommittedOffsetError: A queue has no committed offset to start at; seek.
            RequestError, RefusedError: A broker will not have it, and repeating it is useless.
            ErucaError: No broker answered while waiting.
        """
        return self._portal.call(self._twin.poll, count_max, wait_seconds)

    def batches(
        self, count_max: int = POLL_COUNT_DEFAULT, wait_seconds: float = POLL_SECONDS_DEFAULT
    ) -> Iterator[list[ReceivedMessage]]:
        """Iterate over what :meth:`poll` returns, without empty lists, until closed."""
        return self._portal.iterate(self._twin.batches(count_max, wait_seconds))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        """Return the next message, however long it takes; the one before counts as done."""
        while (item := self._twin._hand_out()) is None:
            if not self._portal.call(self._twin._fill):
                raise StopIteration
        return item

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store how far the group has come: past everything handed out, or where *offsets* say.

        Those go to the brokers even where this consumer has committed the same before: somebody
        else may have moved the group meanwhile. Without them, queues that are gone are left out,
        their topic having been deleted, say.

        Raises:
            ValidationError: The consumer has no group, or an offset is below 0.
            ErucaError: A broker could not store it; the others have.
        """
        self._portal.call(self._twin.commit, offsets)

    def committed(self, queue: MessageQueue) -> int | None:
        """Return where the group stands in *queue* by its broker's word; None for nowhere yet."""
        return self._portal.call(self._twin.committed, queue)

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that is handed out from *queue*."""
        return self._portal.call(self._twin.position, queue)

    def lag(self) -> dict[MessageQueue, int]:
        """Return for each queue how many offsets lie between its position and its end."""
        return self._portal.call(self._twin.lag)

    def offset_by_time(self, queue: MessageQueue, timestamp: datetime) -> int:
        """Return the offset of the first message of *queue* stored at *timestamp* or later."""
        return self._portal.call(self._twin.offset_by_time, queue, timestamp)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read on at *offset*; what was fetched ahead is dropped.

        Whether there is anything at that offset shows at the next poll.
        """
        self._portal.call(self._twin.seek, queue, offset)

    def seek_to_beginning(self, *queues: MessageQueue) -> None:
        """Read on at the first message of *queues*; of all, if none is given."""
        self._portal.call(self._twin.seek_to_beginning, *queues)

    def seek_to_end(self, *queues: MessageQueue) -> None:
        """Read on at what is sent from now on to *queues*; to all, if none is given."""
        self._portal.call(self._twin.seek_to_end, *queues)

    def seek_to_time(self, timestamp: datetime, *queues: MessageQueue) -> None:
        """Read on at the first message of *queues* stored at *timestamp* or later."""
        self._portal.call(self._twin.seek_to_time, timestamp, *queues)

    def pause(self, *queues: MessageQueue) -> None:
        """Hand out nothing from *queues* until they are resumed; from all, if none is given.

        What was fetched ahead of them is dropped, and fetched again then.
        """
        self._portal.call(self._twin.pause, *queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Hand out messages from *queues* again; from all, if none is given."""
        self._portal.call(self._twin.resume, *queues)

    def close(self, *, commit: bool = True) -> None:
        """Stop reading; commit everything handed out, unless *commit* is false.

        Without automatic commits nothing is committed here either.
        """
        self._portal.leave(self._twin.close, commit=commit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.leave(self._twin.__aexit__, kind, error, traceback)
