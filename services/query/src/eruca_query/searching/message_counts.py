"""Count a topic's messages by the time of their storing: in the rows, and in the logs' tails.

The index by topic and time leads to the rows, chunk by chunk, the newest first. A topic may have
any number of messages, so counting stops after a while: whatever is older is then not counted, and
the answer says so. It never shows a part of a bucket as if it were all of it.

As with pages, PostgreSQL's transaction ends before a broker is asked. The tails continue the rows
without an overlap, so each message is counted once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from eruca.contract.errors import TopicNotFoundError
from eruca.contract.names import is_system_topic
from eruca.contract.queries import MessageCount, MessageCounts, Missing
from eruca_chassis.clock import Clock
from eruca_postgres.database import Database
from eruca_query.core.damaged_records import DamagedRecord
from eruca_query.core.found_messages import moment
from eruca_query.core.time_buckets import TimeBuckets
from eruca_query.core.time_windows import windows
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.searching import message_sql
from eruca_query.searching.broker_logs import BrokerLogs, TailAnswer
from eruca_query.searching.completeness import (
    completeness_of,
    damaged_records,
    positions_of,
)
from eruca_query.searching.read_view import ReadView, read_view

COUNT_SECONDS: Final = 2.0  # counting in the rows stops after so long
_CHUNKS_MAX: Final = 1  # of a statement, which reads all their rows of the topic and the time


@dataclass(slots=True)
class _Counted:
    """The rows that were counted.

    Attributes:
        counts: By broker, the number in each bucket that has any.
        from_ms: Everything stored since is counted.
    """

    from_ms: int
    counts: dict[str, dict[int, int]] = field(default_factory=dict)


class MessageCounter:
    """Counts messages.

    Args:
        database: The read model's.
        numbers: The numbers of names; shared with the projection.
        logs: Reads from the brokers.
        clock: Says what now is.
    """

    def __init__(
        self, database: Database, numbers: NameNumbers, logs: BrokerLogs, clock: Clock
    ) -> None:
        self.now_ms = clock.now_ms
        self._database = database
        self._numbers = numbers
        self._logs = logs

    async def count(self, topic: str, buckets: TimeBuckets) -> MessageCounts:
        """Return the number of a topic's messages in each bucket, the oldest first.

        Raises:
            TopicNotFoundError: The topic does not exist. If a broker does not answer, this is
                unknown, and the answer says what may be missing.
        """
        known = await self._logs.brokers()
        async with read_view(self._database, self._numbers) as view:
            serving, positions = view.by_name, positions_of(view, known)
            damaged = await view.damaged()
            counted = await _in_rows(view, topic, buckets)
        tails = await self._logs.tails(positions)
        completeness = completeness_of(serving, known, tails)
        _add_tails(counted, topic, buckets, tails)
        completeness.add_damage(tails)
        completeness.add_damaged(
            damaged_records(damaged, tails, lambda record: _may_belong(record, topic, buckets))
        )
        is_of_none = (
            not any(counted.counts.values())
            and counted.from_ms <= buckets.from_ms
            and not completeness.undecided()
            and not is_system_topic(topic)
        )
        if is_of_none and await self._logs.lack(topic):
            raise TopicNotFoundError(
                f"no broker has topic {topic}", fix=TopicNotFoundError.fix_of(topic)
            )
        if counted.from_ms > buckets.from_ms:
            detail = (
                f"counting takes longer than {COUNT_SECONDS:g} s: messages stored before "
                f"{moment(counted.from_ms).isoformat(timespec='milliseconds')} are not counted"
            )
            completeness.add(Missing(broker_name=None, reason="too_many", detail=detail))
        return MessageCounts(
            since=moment(buckets.from_ms),
            until=moment(buckets.to_ms + 1),
            width_ms=buckets.width_ms,
            counts=[
                MessageCount(
                    start=moment(start),
                    count=None
                    if start < counted.from_ms
                    else sum(by_bucket.get(index, 0) for by_bucket in counted.counts.values()),
                )
                for index, start in enumerate(map(buckets.start_of, range(buckets.count)))
            ],
            read_model=completeness.read_model,
            incomplete=completeness.missing,
        )


async def _in_rows(view: ReadView, topic: str, buckets: TimeBuckets) -> _Counted:
    counted = _Counted(buckets.from_ms)
    topic_no = await view.topic_number(topic)
    if topic_no is None:
        return counted
    ends = await view.ends_of_topic(topic_no)
    deadline = time.monotonic() + COUNT_SECONDS
    for window in windows(
        await view.spans(),
        from_ms=buckets.from_ms,
        to_ms=buckets.to_ms,
        chunks_max=_CHUNKS_MAX,
    ):
        if time.monotonic() > deadline:
            counted.from_ms = window.to_ms + 1
            break
        statement = message_sql.counts(window, topic_no=topic_no, buckets=buckets, ends=ends)
        for broker_no, bucket, count in await view.connection.execute(statement):
            name = view.by_number[broker_no].broker_name
            of_broker = counted.counts.setdefault(name, {})
            of_broker[bucket] = of_broker.get(bucket, 0) + count
    return counted


def _add_tails(
    counted: _Counted, topic: str, buckets: TimeBuckets, tails: Mapping[str, TailAnswer]
) -> None:
    for name, answer in tails.items():
        if answer.tail is None:
            continue
        end = answer.tail.end_of_topic(topic)
        if end is not None:  # the topic was deleted after all rows: they are of the one before
            counted.counts.pop(name, None)
        for message in answer.tail.messages(topic=topic, containing=b""):
            if end is not None and message.log_offset < end:
                break  # they come newest first
            bucket = buckets.index_of(message.stored_ms) if message.topic == topic else None
            if bucket is not None:
                of_broker = counted.counts.setdefault(name, {})
                of_broker[bucket] = of_broker.get(bucket, 0) + 1


def _may_belong(record: DamagedRecord, topic: str, buckets: TimeBuckets) -> bool:
    return record.topic in (None, topic) and record.lies_between(buckets.from_ms, buckets.to_ms)
