"""Transactions that RocketMQ has left undecided in a store, as they are taken over.

RocketMQ keeps no state of them. A half message is undecided until an op message names its offset in
the half queue, and how far its checks have come in both queues is what a group of the system's has
committed there: what lies before is done with. Each check stores the half message again, so one
transaction may be there several times: its latest message counts, and an end of any is its end.

Source: RocketMQ 5.3, ``TransactionalMessageServiceImpl.check``, ``TransactionalMessageBridge``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import structlog

from eruca.contract import properties as names
from eruca.contract.records import Record
from eruca_broker.core.half_messages import HALF_PLACE, OP_PLACE, finished_offsets
from eruca_broker.core.scheduled import Destination
from eruca_broker.core.transactions import LiveTransaction
from eruca_broker.store.consume_queues import ConsumeQueues
from eruca_broker.store.delay_offsets import steps
from eruca_broker.store.reader import Reader

CHECKS_GROUP: Final = "CID_RMQ_SYS_TRANS"

logger = structlog.get_logger(__name__)

Progress = Mapping[tuple[str, int], int]


def imported_transactions(
    queues: ConsumeQueues, reader: Reader, progress: Progress, min_offset: int
) -> list[LiveTransaction]:
    """Return the transactions that RocketMQ has left pending, oldest first.

    Each one's ``offset`` is that of its half message itself, for no event precedes it.

    Args:
        queues: The store's.
        reader: Of its records.
        progress: What :data:`CHECKS_GROUP` has committed, by topic and queue.
        min_offset: Where the log begins.

    Raises:
        RecordNotFoundError: A record that is needed is damaged.
    """
    finished: set[int] = set()
    for _, op in _records(queues, reader, OP_PLACE, progress, min_offset):
        finished.update(finished_offsets(op.body))
    pending: dict[str, LiveTransaction] = {}
    over: set[str] = set()
    for queue_offset, half in _records(queues, reader, HALF_PLACE, progress, min_offset):
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


def _records(
    queues: ConsumeQueues,
    reader: Reader,
    place: Destination,
    progress: Progress,
    min_offset: int,
) -> Iterator[tuple[int, Record]]:
    """Yield what RocketMQ's checks have not passed of a queue, with the queue offsets."""
    queue = queues.existing(*place)
    if queue is None:
        return
    next_offset = max(progress.get((place.topic, place.queue_id), 0), queue.min_offset)
    for entries in steps(queue, next_offset):
        for queue_offset, log_offset in enumerate(entries["log_offset"].tolist(), next_offset):
            if log_offset >= min_offset:
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
