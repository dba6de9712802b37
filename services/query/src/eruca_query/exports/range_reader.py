"""Reading ranges: block after block from the brokers, the next one under way while one is used.

So one block is in use and one more in memory, however long the ranges are. A broker that stops
answering is waited for a little, since it may be restarting, and looked for anew; then the reading
fails with the error that names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Final

from eruca.contract.errors import (
    QueueNotFoundError,
    RangeDeletedError,
    UnavailableError,
    ValidationError,
)
from eruca.contract.exports import ExportRange
from eruca.contract.limits import PULL_COUNT_MAX
from eruca.contract.models import QueueOffsets
from eruca.contract.wire import PullStatus
from eruca_query.exports.blocks import Block
from eruca_query.exports.topic_brokers import TopicBrokers

BLOCK_SIZE: Final = 2 * 1024 * 1024  # bytes of records; one larger message comes by itself
_PAUSE_SECONDS: Final = 0.25  # between two tries
_FAULTS_MAX: Final = 32  # ranges that one error points at


class RangeReader:
    """Reads ranges of one topic.

    Args:
        find: Finds the topic's brokers, as they are now.
        ranges: What is read, in this order.
        patience_seconds: How long a broker may be away while its messages are being read.
    """

    def __init__(
        self,
        find: Callable[[], Awaitable[TopicBrokers]],
        ranges: Sequence[ExportRange],
        *,
        patience_seconds: float,
    ) -> None:
        self._find = find
        self._ranges = ranges
        self._patience_seconds = patience_seconds
        self._brokers: TopicBrokers | None = None

    async def check(self) -> None:
        """Make sure that everything asked for is there.

        Raises:
            TopicNotFoundError, QueueNotFoundError: The topic or a queue is not.
            RangeDeletedError: Retention has deleted the beginning of a range.
            ValidationError: A range ends behind its queue's end.
            BrokerUnreachableError: A broker is away.
        """
        self._brokers = await self._find()
        names = sorted({a_range.broker_name for a_range in self._ranges})
        offsets = {
            (name, queue.queue_id): queue
            for name, queues in (await self._brokers.queues(names)).items()
            for queue in queues
        }
        check_ranges(self._brokers.topic, self._ranges, offsets)

    async def blocks(self) -> AsyncGenerator[Block, None]:
        """Yield all messages of the ranges, in order.

        Raises:
            RangeDeletedError: Retention was faster.
            UnavailableError: A broker was away for too long.
        """
        reading = asyncio.create_task(self._next_of(0, self._first_offset(0)))
        try:
            while (found := await reading) is not None:
                index, block = found
                offset = block.from_offset + len(block.sizes)
                reading = asyncio.create_task(self._next_of(index, offset))
                # Whoever gets the block is to be the last to hold it, however long it waits there.
                handed_on = [block]
                del block, found
                yield handed_on.pop()
        finally:
            reading.cancel()
            await asyncio.wait((reading,))
            if not reading.cancelled():
                reading.exception()  # whoever reads has heard it, or does not want to any more

    def _first_offset(self, index: int) -> int:
        return self._ranges[index].from_offset if index < len(self._ranges) else 0

    async def _next_of(self, index: int, offset: int) -> tuple[int, Block] | None:
        """Return the block at *offset* of the range *index*, or the first of the ranges behind."""
        while index < len(self._ranges) and offset >= self._ranges[index].to_offset:
            index += 1
            offset = self._first_offset(index)
        if index >= len(self._ranges):
            return None
        return index, await self._pull(self._ranges[index], offset)

    async def _pull(self, a_range: ExportRange, offset: int) -> Block:
        deadline = asyncio.get_running_loop().time() + self._patience_seconds
        while True:
            try:
                return await self._pull_once(a_range, offset)
            except UnavailableError as error:
                pause = max(error.retry_after_seconds or 0.0, _PAUSE_SECONDS)
                if asyncio.get_running_loop().time() + pause > deadline:
                    raise
                await asyncio.sleep(pause)
                self._brokers = None  # it may be elsewhere when it comes back

    async def _pull_once(self, a_range: ExportRange, offset: int) -> Block:
        if self._brokers is None:
            self._brokers = await self._find()
        pulled = await self._brokers.pull(
            a_range.broker_name,
            a_range.queue_id,
            offset,
            max_count=min(PULL_COUNT_MAX, a_range.to_offset - offset),
            max_bytes=BLOCK_SIZE,
        )
        if pulled.status is PullStatus.OFFSET_TOO_SMALL:
            raise RangeDeletedError(_deleted(a_range, offset, pulled.min_offset))
        if pulled.status is not PullStatus.FOUND or not len(pulled.sizes):
            raise ValidationError(_beyond_end(a_range, pulled.max_offset))
        return Block(a_range.broker_name, a_range.queue_id, offset, pulled.sizes, pulled.records)


def check_ranges(
    topic: str,
    ranges: Sequence[ExportRange],
    queues: Mapping[tuple[str, int], QueueOffsets],
) -> None:
    """Raise what is wrong with *ranges*, pointing at each; *queues* are what there is."""
    unknown: list[dict[str, str]] = []
    deleted: list[dict[str, str]] = []
    beyond: list[dict[str, str]] = []
    for index, a_range in enumerate(ranges):
        pointer = f"/query/range/{index}"
        queue = queues.get((a_range.broker_name, a_range.queue_id))
        if queue is None:
            unknown.append({"pointer": pointer, "detail": f"{a_range.text}: no such queue"})
        elif a_range.rows and a_range.from_offset < queue.min_offset:
            detail = _deleted(a_range, a_range.from_offset, queue.min_offset)
            deleted.append({"pointer": pointer, "detail": detail})
        elif a_range.to_offset > queue.max_offset:
            beyond.append({"pointer": pointer, "detail": _beyond_end(a_range, queue.max_offset)})
    if unknown:
        raise QueueNotFoundError(
            f"topic {topic}: {_summary(unknown)}", errors=unknown[:_FAULTS_MAX]
        )
    if deleted:
        raise RangeDeletedError(_summary(deleted), errors=deleted[:_FAULTS_MAX])
    if beyond:
        raise ValidationError(
            _summary(beyond), errors=beyond[:_FAULTS_MAX], fix="ask for what a plan has told"
        )


def _summary(faults: list[dict[str, str]]) -> str:
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return faults[0]["detail"] + more


def _deleted(a_range: ExportRange, offset: int, min_offset: int) -> str:
    return f"{a_range.text}: offset {offset} has been deleted, the queue begins at {min_offset}"


def _beyond_end(a_range: ExportRange, max_offset: int) -> str:
    return f"{a_range.text}: the queue ends at {max_offset}"
