"""Import the transactions that RocketMQ has begun or decided in a store.

RocketMQ keeps no state of them. A half message is undecided until an op message names its offset in
the half queue. A system group has committed the progress of its checks in both queues: messages
before it are finished. Each check stores the half message again, so one transaction may be there
several times. Its latest message counts, and an end of any copy is its end.

The same is true if RocketMQ has used a store of Eruca: then it has decided, checked or abandoned
pending transactions, and no event reports it. It wrote after the last event, since Eruca records
one before it serves a store that comes back.

Source: RocketMQ 5.3, ``TransactionalMessageServiceImpl.check``, ``TransactionalMessageBridge``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import structlog

from eruca.contract import properties as names
from eruca.contract.records import Record
from eruca_broker.core.records.half_messages import HALF_PLACE, OP_PLACE, finished_offsets
from eruca_broker.core.records.scheduled import Destination
from eruca_broker.core.state.transactions import LiveTransaction, Transactions
from eruca_broker.store.config.delay_offsets import first_since, steps
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.reading.log_reader import LogReader

CHECKS_GROUP: Final = "CID_RMQ_SYS_TRANS"

logger = structlog.get_logger(__name__)

Progress = Mapping[tuple[str, int], int]
_Stored = dict[str, list[tuple[int, LiveTransaction]]]  # by id, with offsets of its half messages


def imported_transactions(
    queues: ConsumeQueues, reader: LogReader, progress: Progress
) -> list[LiveTransaction]:
    """Return the transactions that RocketMQ has left pending, oldest first.

    Each one's ``offset`` is that of its half message itself, since no event precedes it.

    Args:
        queues: The store's queues.
        reader: Reads its records.
        progress: The offsets that :data:`CHECKS_GROUP` has committed, by topic and queue.

    Raises:
        RecordNotFoundError: A required record is damaged.
    """
    finished = _finished(_records(queues, reader, OP_PLACE, _unpassed(progress, OP_PLACE)))
    pending: dict[str, LiveTransaction] = {}
    over: set[str] = set()
    halves = _records(queues, reader, HALF_PLACE, _unpassed(progress, HALF_PLACE))
    for queue_offset, half in halves:
        live = _pending(half)
        if live is None:
            logger.warning("half message names no transaction", log_offset=half.log_offset)
        elif queue_offset in finished:
            over.add(live.transaction_id)
        else:
            pending.pop(live.transaction_id, None)  # an earlier copy, and its place in the order
            pending[live.transaction_id] = live
    found = [live for live in pending.values() if live.transaction_id not in over]
    if found:
        logger.info("pending transactions imported", count=len(found))
    return found


def take_over(
    transactions: Transactions,
    queues: ConsumeQueues,
    reader: LogReader,
    progress: Progress,
    since: int,
) -> bool:
    """Apply RocketMQ's later changes to *transactions*; tell whether there were any.

    Args:
        transactions: As in the events.
        queues: The store's queues.
        reader: Reads its records.
        progress: The offsets that :data:`CHECKS_GROUP` has committed since, by topic and queue.
        since: Log offset after the last event and its group.

    Raises:
        RecordNotFoundError: A required record is damaged.
    """

    def first_of(queue: ConsumeQueue) -> int:
        return first_since(queue, since)

    finished = _finished(_records(queues, reader, OP_PLACE, first_of))
    passed = progress.get((HALF_PLACE.topic, HALF_PLACE.queue_id), 0)
    stored = _Stored()
    for queue_offset, half in _records(queues, reader, HALF_PLACE, first_of):
        if (live := _pending(half)) is not None:
            stored.setdefault(live.transaction_id, []).append((queue_offset, live))
    if not (finished or passed or stored):
        return False
    counts = Counter[str]()
    for live in list(transactions):
        if live.parked_at is not None:
            stored.pop(live.transaction_id, None)
            continue
        again = stored.pop(live.transaction_id, [])
        places = [_half_of(live, reader).queue_offset, *(place for place, _ in again)]
        if _is_over(places, finished, passed):
            transactions.forget(live.transaction_id)
            counts["ended"] += 1
        elif again:
            # Keep the count of checks: RocketMQ counts them as Eruca does.
            transactions.move(live.transaction_id, again[-1][1].offset)
            counts["checked"] += 1
    for copies in stored.values():
        if not _is_over([place for place, _ in copies], finished, passed):
            transactions.load(copies[-1][1])
            counts["begun"] += 1
    if counts:
        logger.info("transactions changed by RocketMQ", **counts)
    return bool(counts)


def _is_over(places: Sequence[int], finished: set[int], passed: int) -> bool:
    """Tell whether an op message ends a transaction at one of its places in the half queue.

    If RocketMQ's checks have passed all of them without one, it has abandoned the transaction.
    """
    return max(places) < passed or not finished.isdisjoint(places)


def _half_of(live: LiveTransaction, reader: LogReader) -> Record:
    """Return a pending transaction's half message: right after its event, if it has one."""
    record = reader.record(live.offset)
    if record.topic == HALF_PLACE.topic:
        return record
    return reader.record(live.offset + record.size)


def _unpassed(progress: Progress, place: Destination) -> Callable[[ConsumeQueue], int]:
    """Return a function that returns the progress of RocketMQ's checks in a queue."""
    return lambda _: progress.get((place.topic, place.queue_id), 0)


def _finished(ops: Iterable[tuple[int, Record]]) -> set[int]:
    """Return the offsets in the half queue that op messages name."""
    return {offset for _, op in ops for offset in finished_offsets(op.body)}


def _records(
    queues: ConsumeQueues,
    reader: LogReader,
    place: Destination,
    first_of: Callable[[ConsumeQueue], int],
) -> Iterator[tuple[int, Record]]:
    """Yield the records of a queue from an offset on, with their queue offsets."""
    queue = queues.existing(*place)
    if queue is None:
        return
    next_offset = max(first_of(queue), queue.min_offset)
    for entries in steps(queue, next_offset):
        for queue_offset, log_offset in enumerate(entries["log_offset"].tolist(), next_offset):
            if log_offset >= reader.min_offset:
                yield queue_offset, reader.record(log_offset)
        next_offset += len(entries)


def _pending(half: Record) -> LiveTransaction | None:
    properties = half.property_map()
    transaction_id = properties.get(names.UNIQ_KEY)
    producer_group = properties.get(names.PRODUCER_GROUP)
    topic = properties.get(names.REAL_TOPIC)
    if not transaction_id or not producer_group or not topic:
        return None
    immunity_seconds = _number(properties.get(names.CHECK_IMMUNITY_SECONDS))
    checks = _number(properties.get(names.CHECK_TIMES)) or 0
    return LiveTransaction(
        transaction_id,
        producer_group,
        topic,
        _number(properties.get(names.REAL_QUEUE_ID)) or 0,
        half.born_timestamp,
        None if immunity_seconds is None else immunity_seconds * 1000,
        begun_offset=half.log_offset,
        offset=half.log_offset,
        checks=checks,
        checked_at=half.store_timestamp if checks else None,
    )


def _number(text: str | None) -> int | None:
    """Parse a whole number; return None if it is invalid or too large."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 9:
        return None
    return int(text)
