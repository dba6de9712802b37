"""Transactions that RocketMQ has begun or decided in a store, as they are taken over.

RocketMQ keeps no state of them. A half message is undecided until an op message names its offset in
the half queue, and how far its checks have come in both queues is what a group of the system's has
committed there: what lies before is done with. Each check stores the half message again, so one
transaction may be there several times: its latest message counts, and an end of any is its end.

All that is so, too, where it has had a store of Eruca's: then it has decided, checked or given up
what was pending there, and no event tells of it. It wrote behind the last event, for Eruca records
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
from eruca_broker.store.log_reader import LogReader
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.consume_queues import ConsumeQueues

CHECKS_GROUP: Final = "CID_RMQ_SYS_TRANS"

logger = structlog.get_logger(__name__)

Progress = Mapping[tuple[str, int], int]
_Stored = dict[str, list[tuple[int, LiveTransaction]]]  # by id, with the half messages' places


def imported_transactions(
    queues: ConsumeQueues, reader: LogReader, progress: Progress
) -> list[LiveTransaction]:
    """Return the transactions that RocketMQ has left pending, oldest first.

    Each one's ``offset`` is that of its half message itself, for no event precedes it.

    Args:
        queues: The store's.
        reader: Of its records.
        progress: What :data:`CHECKS_GROUP` has committed, by topic and queue.

    Raises:
        RecordNotFoundError: A record that is needed is damaged.
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
    """Bring *transactions* up to date with what RocketMQ has done since; tell whether it did any.

    Args:
        transactions: As the events tell them.
        queues: The store's.
        reader: Of its records.
        progress: What :data:`CHECKS_GROUP` has committed meanwhile, by topic and queue.
        since: Log offset behind the last event and what belongs to it.

    Raises:
        RecordNotFoundError: A record that is needed is damaged.
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
            # How often it was checked stays: its checker counts as Eruca does.
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

    Where RocketMQ has passed them all without, it has given the transaction up.
    """
    return max(places) < passed or not finished.isdisjoint(places)


def _half_of(live: LiveTransaction, reader: LogReader) -> Record:
    """Return a pending transaction's half message: right behind its event, if it has one."""
    record = reader.record(live.offset)
    if record.topic == HALF_PLACE.topic:
        return record
    return reader.record(live.offset + record.size)


def _unpassed(progress: Progress, place: Destination) -> Callable[[ConsumeQueue], int]:
    """Return what tells how much of a queue RocketMQ's checks have passed."""
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
    """Yield the records of a queue from some offset on, with their queue offsets."""
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
    """Return a whole number; None where a property is none, or beyond every use."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 9:
        return None
    return int(text)
