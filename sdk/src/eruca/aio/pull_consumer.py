"""The pull consumer: reads given queues; the program polls it at its own pace.

It takes no part in a rebalance: two pull consumers of one topic both receive every message. With a
group it starts at the group's offsets and commits its progress. Without a group it only reads.

**Commits.** A commit never passes a message that the program may still be processing. ``commit()``
covers everything handed out so far: call it when that is processed. The automatic commit covers the
messages handed out *before* the last poll, or, when iterating, before the current message. A new
poll means that the program has finished the previous messages. So a crash repeats messages and
skips none.

:mod:`eruca.aio.pulling.broker_fetcher` prefetches messages from each broker, within limits. If a
broker is down, it is retried in the background while the consumer reads from the others. If no
broker answers, ``poll`` raises.

Concurrency rule: belongs to the event loop that first uses it. One task polls or iterates, because
each poll acknowledges everything handed out before.

Source: RocketMQ 5.3, ``DefaultLitePullConsumer``. RocketMQ's automatic commit also covers the
messages just returned; this one does not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from eruca.aio.cluster.outages import Outages
from eruca.aio.http.ownership import Ownership
from eruca.aio.pulling.assignment import Assignment
from eruca.contract.errors import ClosedError, ErucaError, ValidationError
from eruca.core.checked_arguments import checked_calls
from eruca.core.checked_numbers import check_count, check_wait
from eruca.core.consuming.handed_batch import HandedBatch
from eruca.core.consuming.pull_flow import QueueFlow
from eruca.core.consuming.pull_positions import StartPosition
from eruca.core.consuming.pull_settings import PullSettings, check_aware
from eruca.core.consuming.refused_queues import refused_places
from eruca.core.messages.message_queue import MessageQueue, checked_queue
from eruca.core.messages.received_message import ReceivedMessage

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext

POLL_COUNT_DEFAULT: Final = 500  # messages
POLL_SECONDS_DEFAULT: Final = 5.0  # RocketMQ's pollTimeoutMillis
_WAIT_SECONDS_MAX: Final = 60.0  # a poll may have no limit; a timer needs one
_COMMIT_SECONDS: Final = 0.2  # how long messages wait for an automatic commit
_LOOK_AGAIN_SECONDS: Final = 1.0  # for a missing topic
TURN_SECONDS: Final = 0.001  # between two turns of the event loop, if no poll waits

_logger = logging.getLogger(__name__)


@checked_calls()
class AsyncPullConsumer:
    """Reads queues; made by :meth:`eruca.AsyncClient.pull_consumer`.

    As a context manager it commits when the block ends: everything handed out. After an exception
    it excludes the messages handed out last, unless the program has committed them itself.
    """

    def __init__(self, context: ClientContext, settings: PullSettings) -> None:
        self._context = context
        self._settings = settings
        self._assignment = Assignment(context, settings)
        self._batch = HandedBatch()
        self._committed: dict[MessageQueue, int] = {}  # committed by this consumer
        self._commit_due_at = 0.0  # by the monotonic clock
        self._turn_due_at = 0.0  # of the event loop, by the same clock
        self._committing: asyncio.Task[None] | None = None  # the latest automatic commit
        self._outages = Outages(
            _logger,
            failed="committing offsets of %s failed; retrying: %s",
            over="offsets of %s are committed again",
            level=logging.WARNING,
        )
        self._ownership = Ownership()
        self._is_filling = False  # an iteration is waiting for its next batch
        self._closing: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def group(self) -> str | None:
        """The group whose offsets are read and committed."""
        return self._settings.group

    @property
    def failures(self) -> dict[str, ErucaError]:
        """The brokers that do not answer now, each with its error."""
        return self._assignment.failures

    async def assignment(self) -> list[MessageQueue]:
        """Return the queues that are read, sorted."""
        await self._complete()
        return sorted(flow.queue for flow in self._assignment.flows)

    async def poll(
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
        check_count("count_max", count_max, 1)
        check_wait(wait_seconds)
        await self._take_next(count_max, wait_seconds)
        return self._batch.hand_out_all()

    async def batches(
        self, count_max: int = POLL_COUNT_DEFAULT, wait_seconds: float = POLL_SECONDS_DEFAULT
    ) -> AsyncIterator[list[ReceivedMessage]]:
        """Iterate over the non-empty results of :meth:`poll`, until the consumer is closed."""
        while not self._is_closed:
            try:
                messages = await self.poll(count_max, wait_seconds)
            except ClosedError:
                if not self._is_closed:
                    raise
                return
            if messages:
                yield messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message, however long it takes; this acknowledges the one before."""
        while (message := self._hand_out()) is None:
            if not await self._fill():
                raise StopAsyncIteration
        return message

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit the group's offsets: past everything handed out, or the given *offsets*.

        Given offsets are always sent, even if this consumer committed the same ones before: another
        client may have changed them meanwhile. Without *offsets*, queues of a deleted topic are
        skipped.

        Raises:
            ValidationError: The consumer has no group, or an offset is below 0.
            ErucaError: A broker could not store its offsets; the others have stored theirs.
        """
        self._check_usable()
        if self._settings.group is None:
            raise ValidationError("group: a consumer without a group cannot commit offsets")
        await self._auto_commit_ended()
        if offsets is None:
            await self._commit_positions(self._positions(self._batch.handed_count))
            return
        for queue, offset in offsets.items():
            checked_queue(queue, "offsets")
            check_count("offsets", offset, 0)
        await self._commit(offsets, leave_out_gone=False)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's offset in *queue*, read from its broker; None if there is none yet."""
        self._check_usable()
        if self._settings.group is None:
            raise ValidationError("group: a consumer without a group has no committed offsets")
        answer = await self._context.broker_api.group_offsets(
            await self._url(queue), self._settings.group, queue.topic
        )
        for offset in answer.offsets:
            if offset.queue_id == queue.queue_id:
                return offset.committed_offset
        return None

    async def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message to be handed out from *queue*."""
        self._check_usable()
        flow = await self._assignment.known(queue)
        assert flow.position is not None
        unread = self._batch.first_offsets_from(self._batch.handed_count)
        return unread.get(queue, flow.position)

    async def lag(self) -> dict[MessageQueue, int]:
        """Return the lag of each queue: the number of offsets between its position and its end."""
        queues = await self.assignment()
        ends: dict[MessageQueue, int] = {}
        for broker_name, topic in sorted({(q.broker_name, q.topic) for q in queues}):
            url = await self._url(MessageQueue(topic, broker_name, 0))
            for offsets in (await self._context.broker_api.topic_queues(url, topic)).queues:
                ends[MessageQueue(topic, broker_name, offsets.queue_id)] = offsets.max_offset
        return {
            queue: max(ends[queue] - await self.position(queue), 0)
            for queue in queues
            if queue in ends
        }

    async def offset_by_time(self, queue: MessageQueue, timestamp: datetime) -> int:
        """Return the offset of the first message of *queue* stored at *timestamp* or later."""
        self._check_usable()
        answer = await self._context.broker_api.offset_by_time(
            await self._url(queue), queue.topic, queue.queue_id, timestamp
        )
        return answer.offset

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue reading at *offset*; drop prefetched messages.

        The next poll raises an error if the queue has no message at that offset.
        """
        check_count("offset", offset, 0)
        await self._complete()
        self._move([self._assignment.flow(queue)], lambda flow: flow.seek(offset))

    async def seek_to_beginning(self, *queues: MessageQueue) -> None:
        """Continue at the first message of *queues*; default: of all queues."""
        await self._seek_to("earliest", queues)

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """Continue at the end of *queues*, with messages sent from now on; default: all queues."""
        await self._seek_to("latest", queues)

    async def seek_to_time(self, timestamp: datetime, *queues: MessageQueue) -> None:
        """Continue at the first message of *queues* stored at *timestamp* or later."""
        check_aware(timestamp, "timestamp")
        await self._seek_to(timestamp, queues)

    async def pause(self, *queues: MessageQueue) -> None:
        """Hand out no messages from *queues* until they are resumed; default: all queues.

        Prefetched messages are dropped, and fetched again when the queues are resumed.
        """
        await self._complete()
        flows = self._assignment.chosen(queues)
        self._assignment.give_back(self._batch.withdraw({flow.queue for flow in flows}))
        self._assignment.move(flows, QueueFlow.pause)

    async def resume(self, *queues: MessageQueue) -> None:
        """Hand out messages from *queues* again; default: all queues."""
        await self._complete()
        for flow in self._assignment.chosen(queues):
            flow.resume()
        self._assignment.kick()
        self._assignment.news.set()

    async def close(self, *, commit: bool = True) -> None:
        """Stop reading; commit everything handed out, unless *commit* is false.

        If automatic commits are off, this call does not commit either.
        """
        await self.leave(drain=commit, failed=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.leave(drain=True, failed=error is not None)

    async def leave(self, *, drain: bool, failed: bool) -> None:
        """Close because the context or the client ends; *failed* if an exception ended it."""
        if not drain:
            await self._close({})
        elif failed:
            await self._close(self._ahead_of_committed(self._positions(self._batch.done_count)))
        else:
            await self._close(self._positions(self._batch.handed_count))

    async def _close(self, positions: Mapping[MessageQueue, int]) -> None:
        """Close, or wait until it is closed; cancelling the caller does not cancel the closing."""
        if self._closing is None:
            self._is_closed = True
            ending = self._end(positions)
            self._closing = asyncio.create_task(ending, name=f"eruca consumer of {self.group} ends")
        await asyncio.shield(self._closing)

    async def _end(self, positions: Mapping[MessageQueue, int]) -> None:
        await self._assignment.close()
        await self._auto_commit_ended()
        if self._settings.commit_seconds is not None and positions:
            try:
                await self._commit_positions(positions)
            except ErucaError as error:
                _logger.warning(
                    "the last offsets of %s could not be committed: %s", self.group, error
                )
        self._context.forget(self)

    def _hand_out(self) -> ReceivedMessage | None:
        """Return the next message of the batch; None if it is used up, or if the caller must wait.

        Does not touch the event loop's own state, so another thread may call it.
        """
        if not self._batch.has_unread or self._commit_is_due():
            return None
        return self._batch.hand_out_one()

    async def _fill(self) -> bool:
        """Do the work between two messages of an iteration; return whether it continues."""
        if self._is_closed:
            return False
        if self._batch.has_unread:
            self._batch.finish_handed()
            await self._auto_commit()
            return True
        if self._is_filling:  # otherwise one batch would overwrite the other
            raise RuntimeError(
                "two tasks or threads iterate over one consumer; make a consumer for each"
            )
        self._is_filling = True
        try:
            await self._take_next(POLL_COUNT_DEFAULT, POLL_SECONDS_DEFAULT)
        except ClosedError:
            if not self._is_closed:
                raise
            return False
        finally:
            self._is_filling = False
        return True

    async def _take_next(self, count_max: int, wait_seconds: float) -> None:
        """Take the next batch; this acknowledges the messages handed out before."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        assignment = self._assignment
        assignment.give_back(self._batch.unread)
        self._batch.replace([])
        await self._give_turn()
        while True:
            assignment.news.clear()
            await self._complete()
            assignment.raise_fault()
            if self._commit_is_due():
                await self._auto_commit()  # first, because with steady traffic no poll ever waits
            messages = assignment.take(count_max)
            if messages:
                self._batch.replace(messages)
                return
            now = loop.time()
            if now >= deadline:
                assignment.raise_failure()
                return
            try:
                async with asyncio.timeout_at(min(deadline, now + self._seconds_to_wait())):
                    await assignment.news.wait()
            except TimeoutError:
                assignment.look_again()

    async def _give_turn(self) -> None:
        """Let the event loop turn once in a while.

        A poll that finds prefetched messages waits for nothing. But only in a turn of the loop are
        pulls sent and answers received, so a program that polls without a pause would handle all
        messages first, and then wait for the broker.
        """
        now = time.monotonic()
        if now >= self._turn_due_at:
            await asyncio.sleep(0)
            self._turn_due_at = time.monotonic() + TURN_SECONDS

    def _seconds_to_wait(self) -> float:
        seconds = _LOOK_AGAIN_SECONDS if self._assignment.missing else _WAIT_SECONDS_MAX
        if self._settings.commit_seconds is not None:
            seconds = min(seconds, max(self._commit_due_at - time.monotonic(), 0.0))
        return seconds

    async def _complete(self) -> None:
        self._check_usable()
        await self._assignment.complete()

    async def _url(self, queue: MessageQueue) -> str:
        view = await self._context.routes.subscribe_view(checked_queue(queue).topic)
        return view.url_of(queue)

    async def _seek_to(
        self, start: StartPosition | datetime, queues: tuple[MessageQueue, ...]
    ) -> None:
        await self._complete()
        flows = self._assignment.chosen(queues)
        self._move(flows, lambda flow: flow.seek_to(start))
        for flow in flows:
            # "latest" means now, not the time of the first poll
            await self._assignment.known(flow.queue)

    def _move(self, flows: list[QueueFlow], move: Callable[[QueueFlow], None]) -> None:
        self._batch.forget({flow.queue for flow in flows})
        self._assignment.move(flows, move)
        for flow in flows:
            self._committed.pop(flow.queue, None)

    def _positions(self, count: int) -> dict[MessageQueue, int]:
        """Return the positions after the first *count* messages of the batch."""
        positions = {
            flow.queue: flow.position
            for flow in self._assignment.flows
            if flow.position is not None
        }
        not_covered = self._batch.first_offsets_from(count)
        return positions | {q: offset for q, offset in not_covered.items() if q in positions}

    def _ahead_of_committed(self, positions: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return the positions that are ahead of this consumer's commits."""
        return {q: offset for q, offset in positions.items() if offset > self._committed.get(q, -1)}

    def _commit_is_due(self) -> bool:
        return self._settings.commit_seconds is not None and time.monotonic() >= self._commit_due_at

    async def _auto_commit(self) -> None:
        """Commit acknowledged messages; a slow broker delays the caller only for a short time.

        The commit continues in the background, and no other one starts before it ends. Otherwise an
        older position could overwrite a newer one.
        """
        assert self._settings.commit_seconds is not None
        self._commit_due_at = time.monotonic() + self._settings.commit_seconds
        if self._committing is None or self._committing.done():
            positions = self._positions(self._batch.done_count)
            self._committing = asyncio.create_task(
                self._commit_quietly(positions), name=f"eruca commit {self.group}"
            )
        await asyncio.wait({self._committing}, timeout=_COMMIT_SECONDS)

    async def _commit_quietly(self, positions: Mapping[MessageQueue, int]) -> None:
        try:
            await self._commit_positions(positions)
        except ErucaError as error:
            self._outages.failed(str(self.group), error)
        else:
            self._outages.answered(str(self.group))

    async def _auto_commit_ended(self) -> None:
        if self._committing is not None:
            await asyncio.wait({self._committing})

    async def _commit_positions(self, positions: Mapping[MessageQueue, int]) -> None:
        """Commit the positions that have changed since this consumer's last commit."""
        moved = {q: offset for q, offset in positions.items() if self._committed.get(q) != offset}
        await self._commit(moved, leave_out_gone=True)

    async def _commit(self, offsets: Mapping[MessageQueue, int], *, leave_out_gone: bool) -> None:
        by_broker: dict[str, dict[MessageQueue, int]] = {}
        for queue, offset in sorted(offsets.items()):
            by_broker.setdefault(queue.broker_name, {})[queue] = offset
        outcomes = await asyncio.gather(
            *(
                self._commit_to_broker(its, leave_out_gone=leave_out_gone)
                for its in by_broker.values()
            ),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _commit_to_broker(
        self, offsets: Mapping[MessageQueue, int], *, leave_out_gone: bool
    ) -> None:
        left = dict(offsets)
        while left:
            try:
                await self._store(left)
            except ErucaError as error:
                gone = [list(left)[place] for place in refused_places(error, len(left))]
                if not (gone and leave_out_gone):
                    raise
                _logger.info("skipped committing offsets of %s: %s", self.group, error)
                left = {queue: offset for queue, offset in left.items() if queue not in gone}
            else:
                return

    async def _store(self, offsets: Mapping[MessageQueue, int]) -> None:
        from eruca.aio.cluster.requests import checked_request  # pydantic: loaded when needed
        from eruca.contract.groups import OffsetCommit  # … as well

        assert self._settings.group is not None
        with checked_request():
            commits = [
                OffsetCommit(topic=queue.topic, queue_id=queue.queue_id, offset=offset)
                for queue, offset in offsets.items()
            ]
        url = await self._url(next(iter(offsets)))
        await self._context.broker_api.commit_offsets(url, self._settings.group, commits)
        self._committed.update(offsets)

    def _check_usable(self) -> None:
        if self._is_closed:
            raise ClosedError("the consumer is closed")
        self._ownership.check()
