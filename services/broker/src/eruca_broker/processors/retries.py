"""Sending back: a member returns messages that it could not consume, for a later retry.

A request is decided as a whole, in its group's turn, and written at once. All of its messages
become retries or dead letters, or none does. A damaged message becomes a dead letter at once, which
contains only its place and the damage. A member that no longer holds the queues is refused, because
another one reads those messages now.

A client that gets no answer cannot know the outcome and sends back again. So a message may be
retried twice.

Source: RocketMQ 5.3, ``AbstractSendMessageProcessor.consumerSendMsgBack``. There any client may
send back anything, one message at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from eruca.contract.errors import RecordNotFoundError, TooLargeError
from eruca.contract.names import dead_letter_topic, retry_topic
from eruca.contract.records import Host, Record, decode_record
from eruca.contract.retries import SendBack, SendBackResult, SendBackResults, SendBacks
from eruca_broker.core.batches.batch import Batch, batch_of_records
from eruca_broker.core.consuming.retry_policy import Verdict, verdict
from eruca_broker.core.damage import Damage
from eruca_broker.core.records.dead_letters import (
    dead_letter_of,
    letter_of_damage,
    origin_of,
    retry_of,
)
from eruca_broker.core.records.scheduled import Destination, PropertiesTooLargeError, host_bits_of
from eruca_broker.core.records.times import moment
from eruca_broker.core.state.group_state import Group
from eruca_broker.core.state.state import Topic
from eruca_broker.processors.groups.groups import Groups
from eruca_broker.processors.groups.queue_locks import HeldQueue, QueueLocks
from eruca_broker.processors.groups.work import GroupWork
from eruca_broker.processors.scheduled import Scheduled
from eruca_broker.processors.topics import Topics
from eruca_chassis.finishing import finished

SENT_BACK_SIZE_MAX: Final = 16 * 1024 * 1024  # bytes of one request's messages, unless one


class _Stored(NamedTuple):
    """A message that was sent back, as stored in the log."""

    raw: memoryview
    record: Record


class Retries:
    """Handles the messages that members send back."""

    def __init__(
        self,
        work: GroupWork,
        topics: Topics,
        groups: Groups,
        locks: QueueLocks,
        scheduled: Scheduled,
    ) -> None:
        self.retried_count = 0  # since the start
        self.dead_count = 0
        self._work = work
        self._topics = topics
        self._groups = groups
        self._locks = locks
        self._scheduled = scheduled

    async def send_back(self, name: str, request: SendBacks) -> SendBackResults:
        """Schedule messages for redelivery, or make them dead letters; durable on return.

        Raises:
            GroupNotFoundError: There is no such group.
            StaleLockError: One of the queues is not held by its token; nothing has changed.
            RecordNotFoundError: One of the messages does not exist; nothing has changed.
            TooLargeError: One has no room for the properties of a retry or of its delivery; nothing
                has changed.
            OverloadedError: The maximum number of messages wait.
        """
        held = [HeldQueue(m.topic, m.queue_id, m.token) for m in request.messages]
        for message in request.messages:  # it is in memory before the turn
            with suppress(RecordNotFoundError):
                find = partial(self._read, message, "")
                await self._work.store.cold.read(f"group {name}", find)
        async with self._work.changes.turn(name):
            group = self._groups.get(name)
            self._locks.check(
                group, request.client_id, request.incarnation, held, pointer="/body/messages"
            )
            self._scheduled.check_room(len(held))
            now_ms = self._work.clock.now_ms()
            stored, verdicts, size = [], [], 0
            for index, message in enumerate(request.messages):
                stored.append(self._read(message, f"/body/messages/{index}"))
                size += 0 if isinstance(stored[-1], Damage) else len(stored[-1].raw)
                if index and size > SENT_BACK_SIZE_MAX:
                    raise TooLargeError(
                        f"the messages take more than {SENT_BACK_SIZE_MAX} bytes together",
                        fix="send fewer of them back at once",
                    )
                last_stored_ms = self._work.store.last_store_timestamp
                verdicts.append(_verdict(group, message, stored[-1], now_ms, last_stored_ms))
            host = self._work.store.settings.store_host
            batches = _batches(name, request.messages, stored, verdicts, now_ms=now_ms, host=host)
            self._scheduled.check_sizes(batches)
            await self._create_topics(name, verdicts)  # if it is refused, of none
            # The turn must not end earlier.
            receipts = await finished(self._work.store.append_group(batches))
        dead = sum(result.wait is None for result in verdicts)
        self.dead_count += dead
        self.retried_count += len(verdicts) - dead
        return SendBackResults(
            results=[_result(result, receipts[0].store_timestamp) for result in verdicts]
        )

    def _read(self, message: SendBack, pointer: str) -> _Stored | Damage:
        first, end = self._work.store.queues.range_for(
            message.topic, message.queue_id, message.queue_offset
        )
        if first <= message.queue_offset < end:
            read = self._work.store.queues.read(
                message.topic, message.queue_id, message.queue_offset, count_max=1, bytes_max=1
            )
            if read.damage is not None:
                return read.damage
            if read.slices:
                raw = memoryview(read.slices[0])
                return _Stored(raw, decode_record(raw, check_crc=False))
        detail = (
            f"queue {message.queue_id} of {message.topic!r} has no message {message.queue_offset}; "
            f"it holds {first} to {end - 1}"
        )
        raise RecordNotFoundError(
            f"{pointer}: {detail}",
            errors=[{"pointer": f"{pointer}/queue_offset", "detail": detail}],
            fix="omit it, it is deleted; send the others back",
        )

    async def _create_topics(self, name: str, verdicts: Sequence[Verdict]) -> None:
        for topic in {
            dead_letter_topic(name) if result.wait is None else retry_topic(name)
            for result in verdicts
        }:
            await self._topics.created(Topic(topic, 1, 1, "rw"), is_for_group=True)


def _verdict(
    group: Group, message: SendBack, stored: _Stored | Damage, now_ms: int, last_stored_ms: int
) -> Verdict:
    if isinstance(stored, Damage):
        return Verdict(message.attempts or 0, None)  # no attempt can succeed
    asked_for = message.retries_max
    found = verdict(
        stored.record.reconsume_times,
        times_max=group.settings.retries_max if asked_for is None else asked_for,
        policy=group.settings.retry_policy,
        now_ms=now_ms,
        level=message.delay_level,
        delay_seconds=message.delay_seconds,
    )
    if found.wait is None:
        return found
    return replace(found, wait=found.wait.beginning(now_ms, last_stored_ms))


def _batches(
    group: str,
    messages: Sequence[SendBack],
    stored: Sequence[_Stored | Damage],
    verdicts: Sequence[Verdict],
    *,
    now_ms: int,
    host: Host,
) -> list[Batch]:
    records: defaultdict[tuple[Destination, int], list[bytes]] = defaultdict(list)
    dead_letters = Destination(dead_letter_topic(group), 0)
    for index, (message, found, result) in enumerate(zip(messages, stored, verdicts, strict=True)):
        if isinstance(found, Damage):
            record = letter_of_damage(
                found,
                group,
                (message.topic, message.queue_id),
                attempts=result.reconsume_times,
                now_ms=now_ms,
                host=host,
            )
            records[dead_letters, host_bits_of(record)].append(record)
            continue
        raw, origin, times = found.raw, origin_of(found.record), result.reconsume_times
        pointer = f"/body/messages/{index}"
        try:
            if result.wait is None:
                place = dead_letters
                record = dead_letter_of(
                    raw,
                    group,
                    origin,
                    reconsume_times=max(times, message.attempts or 0),
                    reason=message.reason,
                    error=message.error,
                )
            else:
                place = result.wait.place
                record = retry_of(
                    raw,
                    group,
                    origin,
                    reconsume_times=times,
                    wait=result.wait,
                    reason=message.reason,
                    error=message.error,
                )
        except RecordNotFoundError as error:
            raise _lost(pointer, error.detail) from error
        except PropertiesTooLargeError as error:
            raise TooLargeError(
                f"{pointer}: to be sent back, {error}",
                errors=[{"pointer": pointer, "detail": str(error)}],
            ) from error
        records[place, host_bits_of(record)].append(record)
    return [
        batch_of_records(place.topic, place.queue_id, some) for (place, _), some in records.items()
    ]


def _lost(pointer: str, detail: str) -> RecordNotFoundError:
    return RecordNotFoundError(
        f"{pointer}: {detail}",
        errors=[{"pointer": f"{pointer}/queue_offset", "detail": detail}],
        fix="omit it, it cannot become a retry; send the others back",
    )


def _result(result: Verdict, stored_at_ms: int) -> SendBackResult:
    if result.wait is None:
        return SendBackResult(
            outcome="dead_letter", reconsume_times=result.reconsume_times, deliver_at=None
        )
    return SendBackResult(
        outcome="retry",
        reconsume_times=result.reconsume_times,
        deliver_at=moment(result.wait.time_ms(stored_at_ms)),
    )
