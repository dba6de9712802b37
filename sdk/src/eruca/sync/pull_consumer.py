"""The pull consumer: reads given queues; the program polls it at its own pace.

Generated from ``eruca.aio.pull_consumer`` by ``sdk/tools/generate_sync.py``; change that one.
See :mod:`eruca.sync.portal` for its design and its rules for threads.
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

    As a context manager it commits when the block ends: everything handed out. After an exception
    it excludes the messages handed out last, unless the program has committed them itself.
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
        """The brokers that do not answer now, each with its error."""
        return self._twin.failures

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that are read, sorted."""
        return self._portal.call(self._twin.assignment)

    def poll(
        self, count_max: int = POLL_COUNT_DEFAULT, wait_seconds: float = POLL_SECONDS_DEFAULT
    ) -> list[ReceivedMessage]:
        """Return the next messages, in order per queue; empty if none arrive in *wait_seconds*.

        Args:
            count_max: Maximum number of messages.
            wait_seconds: Maximum wait for the first message; 0: only prefetched messages. The first
                call waits up to 30 seconds longer while no broker is registered, because brokers
                may be restarting.

        Raises:
            TopicNotFoundError: A topic does not exist.
            OffsetOutOfRangeError: A queue has no message at its position any more; seek.
            NoCommittedOffsetError: A queue has no committed offset to start at; seek.
            RequestError, RefusedError: A broker refuses the request; a retry fails as well.
            ErucaError: No broker answered in time.
        """
        return self._portal.call(self._twin.poll, count_max, wait_seconds)

    def batches(
        self, count_max: int = POLL_COUNT_DEFAULT, wait_seconds: float = POLL_SECONDS_DEFAULT
    ) -> Iterator[list[ReceivedMessage]]:
        """Iterate over the non-empty results of :meth:`poll`, until the consumer is closed."""
        return self._portal.iterate(self._twin.batches(count_max, wait_seconds))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        """Return the next message, however long it takes; this acknowledges the one before."""
        while (item := self._twin._hand_out()) is None:
            if not self._portal.call(self._twin._fill):
                raise StopIteration
        return item

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit the group's offsets: past everything handed out, or the given *offsets*.

        Given offsets are always sent, even if this consumer committed the same ones before: another
        client may have changed them meanwhile. Without *offsets*, queues of a deleted topic are
        skipped.

        Raises:
            ValidationError: The consumer has no group, or an offset is below 0.
            ErucaError: A broker could not store its offsets; the others have stored theirs.
        """
        self._portal.call(self._twin.commit, offsets)

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's offset in *queue*, read from its broker; None if there is none yet."""
        return self._portal.call(self._twin.committed, queue)

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message to be handed out from *queue*."""
        return self._portal.call(self._twin.position, queue)

    def lag(self) -> dict[MessageQueue, int]:
        """Return the lag of each queue: the number of offsets between its position and its end."""
        return self._portal.call(self._twin.lag)

    def offset_by_time(self, queue: MessageQueue, timestamp: datetime) -> int:
        """Return the offset of the first message of *queue* stored at *timestamp* or later."""
        return self._portal.call(self._twin.offset_by_time, queue, timestamp)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue reading at *offset*; drop prefetched messages.

        The next poll raises an error if the queue has no message at that offset.
        """
        self._portal.call(self._twin.seek, queue, offset)

    def seek_to_beginning(self, *queues: MessageQueue) -> None:
        """Continue at the first message of *queues*; default: of all queues."""
        self._portal.call(self._twin.seek_to_beginning, *queues)

    def seek_to_end(self, *queues: MessageQueue) -> None:
        """Continue at the end of *queues*, with messages sent from now on; default: all queues."""
        self._portal.call(self._twin.seek_to_end, *queues)

    def seek_to_time(self, timestamp: datetime, *queues: MessageQueue) -> None:
        """Continue at the first message of *queues* stored at *timestamp* or later."""
        self._portal.call(self._twin.seek_to_time, timestamp, *queues)

    def pause(self, *queues: MessageQueue) -> None:
        """Hand out no messages from *queues* until they are resumed; default: all queues.

        Prefetched messages are dropped, and fetched again when the queues are resumed.
        """
        self._portal.call(self._twin.pause, *queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Hand out messages from *queues* again; default: all queues."""
        self._portal.call(self._twin.resume, *queues)

    def close(self, *, commit: bool = True) -> None:
        """Stop reading; commit everything handed out, unless *commit* is false.

        If automatic commits are off, this call does not commit either.
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
