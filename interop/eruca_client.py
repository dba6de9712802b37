"""Eruca through its own SDK; operations on records are also done in JSON."""

from __future__ import annotations

import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self
from urllib.parse import quote

import httpx
import msgspec

import eruca
from eruca.contract.errors import NotFoundError
from eruca.contract.messages import PulledMessage
from interop.messages import Message, NewMessage, Origin, Receipt, host_text
from interop.side import By

_PULL_COUNT: Final = 256
_DECIDED_SECONDS_MAX: Final = 90.0
_POLL_SECONDS: Final = 0.1
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MS: Final = timedelta(milliseconds=1)


class ErucaClient:
    """A session of the SDK, and plain HTTP to the broker."""

    name = "Eruca"

    def __init__(
        self, name_server: str, broker: str, checker: Callable[[], AbstractContextManager[object]]
    ) -> None:
        self._name_server = name_server
        self._broker = broker
        self._checker = checker  # runs a transaction checker
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self._sdk = opening.enter_context(eruca.Client(self._name_server, timeout_seconds=30))
            self._producer = opening.enter_context(self._sdk.producer(send_timeout_seconds=30))
            self._http = opening.enter_context(httpx.Client(base_url=self._broker, timeout=30))
            self._open = opening.pop_all()
        return self

    def __exit__(self, *failure: object) -> None:
        self._open.close()

    def create_topic(self, topic: str, queue_count: int) -> None:
        """Create *topic*."""
        self._sdk.admin.create_topic(topic, queue_count=queue_count)

    def send(self, messages: Sequence[NewMessage]) -> list[Receipt]:
        """Send the messages in the SDK's batches of records."""
        results = self._producer.send_many([sdk_message(message) for message in messages])
        return list(map(receipt_of, results))

    def send_batch(self, messages: Sequence[NewMessage]) -> list[Receipt]:
        """Send all messages at once to one queue, in JSON."""
        answer = self._http.post(
            f"/v1/topics/{quote(messages[0].topic)}/messages",
            json={"messages": [_json_message(message) for message in messages]},
        )
        return [
            Receipt(
                row["queue_id"], row["queue_offset"], row["message_id"], row["offset_message_id"]
            )
            for row in answer.raise_for_status().json()["messages"]
        ]

    def queue_ranges(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return each queue's first and next offset."""
        return {
            queue.queue_id: (offsets.min_offset, offsets.max_offset)
            for queue, offsets in self._sdk.admin.queues(topic).items()
        }

    def read_topic(self, topic: str) -> list[Message]:
        """Return every message of every queue, pulled by the SDK."""
        with self._sdk.pull_consumer(topics=topic) as consumer:
            return list(_drained(consumer))

    def read_topic_in_json(self, topic: str) -> list[Message]:
        """Return every message of every queue, pulled in JSON."""
        return [
            message
            for queue_id, (first, end) in self.queue_ranges(topic).items()
            for message in self._queue_in_json(topic, queue_id, first, end)
        ]

    def find(self, by: By, topic: str, values: Sequence[str]) -> dict[str, list[Message]]:
        """Look up each key or id; return the messages found."""
        one = self._at_offset_id if by == "offset_id" else self._with_key
        return {value: one(topic, value) for value in values}

    def consume(
        self, topic: str, *, group: str, count: int, expression: str = "*"
    ) -> list[Message]:
        """Return the messages from the group's offsets on, and commit the new offsets."""
        with self._sdk.pull_consumer(
            group, topics=topic, filter=expression, commit_seconds=None
        ) as consumer:
            messages = list(_drained(consumer))
            consumer.commit()
        return messages

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Return a group's committed offsets above 0, by queue."""
        try:
            offsets = self._sdk.admin.groups.offsets(group, topic=topic)
        except NotFoundError:
            return {}  # the group never committed
        return {
            queue.queue_id: committed.committed_offset
            for queue, committed in offsets.items()
            if committed.committed_offset
        }

    def offsets_by_time(self, topic: str, queue_id: int, times_ms: Sequence[int]) -> list[int]:
        """Return the first offset stored at or after each time."""
        queue = next(q for q in self._sdk.admin.queues(topic) if q.queue_id == queue_id)
        return [self._sdk.admin.offset_by_time(queue, _EPOCH + time * _MS) for time in times_ms]

    def send_later(self, topic: str, body: bytes, *, seconds: float = 0, level: int = 0) -> str:
        """Send a delayed message; return its recall handle."""
        delay = {"delay_level": level} if level else {"delay_seconds": seconds}
        answer = self._http.post(
            f"/v1/topics/{quote(topic)}/messages",
            json={"messages": [{"body": {"text": body.decode()}, **delay}]},
        )
        return str(answer.raise_for_status().json()["messages"][0]["recall_handle"])

    def recall(self, topic: str, handle: str) -> None:
        """Recall a delayed message."""
        assert self._sdk.admin.recall_scheduled(handle).topic == topic

    def fail_one(self, topic: str, group: str, body: bytes, *, retries_max: int) -> None:
        """Send a message, and let it fail in *group*."""
        self._sdk.admin.groups.create(group, start="earliest", retries_max=retries_max)
        self._producer.send(eruca.Message(topic, body))
        failed = threading.Event()

        def fail(message: eruca.ReceivedMessage) -> None:
            if message.body == body:
                failed.set()
                raise ValueError("fail on purpose, for a retry or a dead letter")

        self._push(topic, group, fail, failed)

    def consume_retries(self, topic: str, *, group: str, count: int) -> list[bytes]:
        """Return the bodies of *count* messages of a group, including its retries."""
        bodies: list[bytes] = []
        done = threading.Event()

        def take(message: eruca.ReceivedMessage) -> None:
            bodies.append(message.body)
            if len(bodies) >= count:
                done.set()

        self._push(topic, group, take, done)
        return bodies

    def _push(
        self,
        topic: str,
        group: str,
        handler: Callable[[eruca.ReceivedMessage], None],
        done: threading.Event,
    ) -> None:
        consumer = self._sdk.push_consumer(group)
        consumer.subscribe(topic, handler=handler)
        with consumer:
            done.wait(_DECIDED_SECONDS_MAX)

    def pending_transactions(self) -> list[str]:
        """Return the ids of undecided transactions."""
        pending = self._sdk.admin.transactions.undecided(state="pending")
        return [transaction.transaction_id for transaction in pending]

    def commit_by_check(self, group: str, transaction_id: str) -> eruca.ReceivedMessage:
        """Answer checks of *group* until this transaction is committed; return its half message."""
        asked: dict[str, eruca.ReceivedMessage] = {}

        def commit(check: eruca.TransactionCheck) -> eruca.Verdict:
            asked[check.transaction_id] = check.message
            return "commit" if check.transaction_id == transaction_id else "unknown"

        with self._checker(), self._sdk.transaction_producer(group, check=commit):
            deadline = time.monotonic() + _DECIDED_SECONDS_MAX
            while transaction_id in self.pending_transactions():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"transaction {transaction_id} is still undecided")
                time.sleep(_POLL_SECONDS)
        return asked[transaction_id]

    def _queue_in_json(self, topic: str, queue_id: int, offset: int, end: int) -> Iterator[Message]:
        path = f"/v1/topics/{quote(topic)}/queues/{queue_id}/messages"
        while offset < end:
            where = {"offset": offset, "count_max": _PULL_COUNT}
            answer = self._http.get(path, params=where).raise_for_status().json()
            yield from map(
                _message_in_json, msgspec.convert(answer["messages"], list[PulledMessage])
            )
            if answer["next_offset"] <= offset:
                raise ValueError(f"a pull from {offset} leads to {answer['next_offset']}")
            offset = answer["next_offset"]

    def _with_key(self, topic: str, key: str) -> list[Message]:
        return [_message_in_json(row) for row in self._sdk.admin.messages_by_key(topic, key)]

    def _at_offset_id(self, topic: str, offset_id: str) -> list[Message]:
        message = _message_in_json(self._sdk.admin.message_by_offset_id(offset_id).message)
        return [message] if message.topic == topic else []


def _drained(consumer: eruca.PullConsumer) -> Iterator[Message]:
    while any(consumer.lag().values()):
        yield from map(_message_in_records, consumer.poll(_PULL_COUNT))


def receipt_of(result: eruca.SendResult) -> Receipt:
    """Return a send's receipt in the common form."""
    assert result.queue_offset is not None  # no delayed message is sent here
    return Receipt(
        result.queue.queue_id, result.queue_offset, result.message_id, result.offset_message_id
    )


def sdk_message(message: NewMessage) -> eruca.Message:
    """Return a message as the SDK sends it."""
    return eruca.Message(
        message.topic,
        message.body,
        keys=message.keys,
        tag=message.tag,
        properties=message.properties,
        sharding_key=message.sharding_key,
        flag=message.flag,
    )


def _json_message(message: NewMessage) -> dict[str, Any]:
    return {
        "body": {"base64": b64encode(message.body).decode()},
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "sharding_key": message.sharding_key,
        "flag": message.flag,
    }


def _message_in_records(message: eruca.ReceivedMessage) -> Message:
    return Message(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        message_id=message.message_id,
        offset_message_id=message.offset_message_id,
        tag=message.tag,
        keys=tuple(message.keys),
        sharding_key=message.sharding_key,
        properties=message.properties,
        body=message.body,
        flag=message.flag,
        origin=Origin(
            born_ms=_ms(message.born_at),
            born_host=host_text(message.born_host.ip, message.born_host.port),
            stored_ms=message.stored_at_ms,
            store_host=host_text(message.store_host.ip, message.store_host.port),
            log_offset=message.log_offset,
            size=message.size,
        ),
    )


def _message_in_json(row: PulledMessage) -> Message:
    body = row.body
    assert row.damage is None, row
    assert body is not None
    assert row.offset_message_id is not None
    assert row.flag is not None
    assert row.born_at is not None
    assert row.born_host is not None
    assert row.stored_at is not None
    assert row.store_host is not None
    return Message(
        topic=row.topic,
        queue_id=row.queue_id,
        queue_offset=row.queue_offset,
        message_id=row.message_id,
        offset_message_id=row.offset_message_id,
        tag=row.tag,
        keys=tuple(row.keys),
        sharding_key=row.sharding_key,
        properties=row.properties,
        body=b64decode(body.base64) if body.base64 is not None else (body.text or "").encode(),
        flag=row.flag,
        origin=Origin(
            born_ms=_ms(datetime.fromisoformat(row.born_at)),
            born_host=host_text(*row.born_host.rsplit(":", 1)),
            stored_ms=_ms(datetime.fromisoformat(row.stored_at)),
            store_host=host_text(*row.store_host.rsplit(":", 1)),
            log_offset=row.log_offset,
            size=row.size,
        ),
    )


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // _MS
