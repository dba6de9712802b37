"""Send rows to a topic in batches; each batch is stored whole or not at all."""

from __future__ import annotations

import base64
import json
import os
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from pyspark_eruca.columns import DAMAGE
from pyspark_eruca.credentials import credentials_of
from pyspark_eruca.errors import SourceError
from pyspark_eruca.ranges import Queue
from pyspark_eruca.replay_options import ReplayOptions
from pyspark_eruca.replayed import (
    REPLAY_ID_PROPERTY,
    REPLAY_ORIGIN_PROPERTY,
    Digests,
    replay_digest,
)
from pyspark_eruca.service import TRANSIENT, Service

REPLAY_BATCH_COUNT: Final = 1_000  # messages in one request
# Bytes of their JSON, in which a body is a third larger. A broker accepts 6 MiB of JSON and 4 MiB
# of records. A record is at most a little larger than its message in JSON.
REPLAY_BATCH_SIZE: Final = 3 * 1024 * 1024

_BODY_FORMAT: Final = "ERUCA_BODY_FORMAT"  # "json": the format in which the body was sent
_COMPRESSED: Final = 1  # this bit of sys_flag stays if a body could not be decompressed

# Names that a replayed message must not have, because brokers and clients interpret them.
# fmt: off
RESERVED_PROPERTIES: Final = frozenset((
    "TRACE_ON", "MSG_REGION", "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC",
    "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID",
    "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME",
    "UNIQ_KEY", "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "POP_CK",
    "POP_CK_OFFSET", "1ST_POP_TIME", "TRAN_PREPARED_QUEUE_OFFSET", "DUP_INFO", "INSTANCE_ID",
    "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER",
    "MSG_TYPE", "INNER_MULTI_QUEUE_OFFSET", "TIMER_DELAY_MS", "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES",
    "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "__BORNHOST", "BORN_TIMESTAMP",
    "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "__CRC32#", "__SHARDINGKEY",
    "CHECK_IMMUNITY_TIME_IN_SECONDS", "__transactionId__", "TRANSACTION_CHECK_TIMES",
    "INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH", "REDIRECT", "TRACE_CONTEXT",
    "ERUCA_ORIGIN_QID", "ERUCA_ORIGIN_OFFSET", "ERUCA_RETRY_REASON", "ERUCA_RETRY_ERROR",
    "ERUCA_DEAD_REASON", "ERUCA_DEAD_ERROR", "ERUCA_BODY_FORMAT",
))
# fmt: on


class _Message(NamedTuple):
    """A message that waits for sending."""

    message_id: str
    text: bytes  # its JSON


class ReplaySender:
    """Sends rows in batches, one queue of the target at a time."""

    def __init__(self, options: ReplayOptions, known: Sequence[Digests]) -> None:
        self._options = options
        self._known = [digests for digests in known if len(digests)]
        self._brokers: dict[str, Service] = {}
        self._queues = self._write_queues()
        self._waiting: dict[Queue, list[_Message]] = {}
        self._sizes: dict[Queue, int] = {}
        self.sent = 0
        self.skipped = 0
        self.damaged = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row to the batch of its queue, unless it has already been sent.

        Raises:
            SourceError: It must not be sent.
        """
        origin = Queue(row["topic"], row["broker_name"], row["queue_id"])
        text = f"{origin.text}/{row['queue_offset']}"
        digest = replay_digest(self._options.replay, text)
        if any(digest in digests for digests in self._known):
            self.skipped += 1
            return
        if row.get(DAMAGE) is not None:
            self.damaged += 1
            print(f"{text}: damaged, not sent: {row[DAMAGE]}", file=sys.stderr)
            return
        properties = dict(row.get("properties") or ())
        self._refuse_loop(text, properties.get(REPLAY_ORIGIN_PROPERTY))
        if (row.get("sys_flag") or 0) & _COMPRESSED:
            raise SourceError(f"{text}: its body could not be decompressed, so it is not sent")
        queue = self._queue_for(row.get("sharding_key"), origin)
        waiting = self._waiting.setdefault(queue, [])
        message = self._message(row, properties, text, digest)
        size = self._sizes.get(queue, 0) + len(message.text)
        if waiting and (len(waiting) == REPLAY_BATCH_COUNT or size > REPLAY_BATCH_SIZE):
            self._send(queue)
            waiting, size = self._waiting[queue], len(message.text)
        waiting.append(message)
        self._sizes[queue] = size

    def flush(self) -> None:
        """Send the remaining messages."""
        for queue in list(self._waiting):
            self._send(queue)

    def _message(
        self, row: Mapping[str, Any], properties: Mapping[str, str], origin: str, digest: bytes
    ) -> _Message:
        own = {name: text for name, text in properties.items() if name not in RESERVED_PROPERTIES}
        own[REPLAY_ID_PROPERTY] = self._options.replay
        own[REPLAY_ORIGIN_PROPERTY] = origin
        message_id = digest.hex().upper()
        message = {
            "tag": row.get("tag"),
            "keys": row.get("keys") or [],
            "properties": own,
            "sharding_key": row.get("sharding_key"),
            "message_id": message_id,
            "flag": row.get("flag") or 0,
        }
        body = _body_json(row["body"], is_json=properties.get(_BODY_FORMAT) == "json")
        return _Message(message_id, b'{"body": %b, %b' % (body, json.dumps(message).encode()[1:]))

    def _refuse_loop(self, origin: str, earlier: str | None) -> None:
        came_from = {text.split("/")[0] for text in (origin, earlier) if text}
        if self._options.topic in came_from and not self._options.is_forced:
            raise SourceError(
                f"{origin} comes from {self._options.topic}, which is also the target: this"
                " would be a loop; to send it nevertheless, set force=true"
            )

    def _queue_for(self, sharding_key: str | None, origin: Queue) -> Queue:
        if sharding_key:
            return self._queues[queue_index(sharding_key, len(self._queues))]
        return self._queues[zlib.crc32(origin.text.encode()) % len(self._queues)]

    def _send(self, queue: Queue) -> None:
        messages = self._waiting.pop(queue)
        self._waiting[queue] = []
        self._sizes[queue] = 0
        if not messages:
            return
        service = self._brokers[queue.broker_name]
        path = f"/v1/topics/{quote(queue.topic, safe='')}/messages"
        body = b'{"messages": [%b]}' % b", ".join(message.text for message in messages)
        patience = service.patience()
        is_first_try = True
        while True:
            try:
                # A batch is stored whole, so its first message shows whether it is stored.
                if is_first_try or not self._is_stored(service, path, messages[0].message_id):
                    is_first_try = False
                    service.post(path, [("queue_id", str(queue.queue_id))], body)
            except TRANSIENT as error:
                patience.wait(error)
            else:
                self.sent += len(messages)
                return

    def _is_stored(self, service: Service, path: str, message_id: str) -> bool:
        found = service.get_json(path, [("key", message_id), ("limit", "1")])
        return bool(found["messages"])

    def _write_queues(self) -> list[Queue]:
        options = self._options
        namesrv = self._service(options.namesrvs)
        # All queues of the topic, because keys are divided over them. A name server that has just
        # started would return only some.
        route = namesrv.get_json(
            f"/v1/topics/{quote(options.topic, safe='')}/route", [("require_settled", "true")]
        )
        masters = {
            broker["broker_name"]: broker["urls"].get("0", {}).get("default")
            for broker in route["brokers"]
        }
        queues = []
        for data in sorted(route["queues"], key=lambda data: str(data["broker_name"])):
            name, url = data["broker_name"], masters.get(data["broker_name"])
            if url and "w" in data["permission"]:
                self._brokers[name] = self._service([url])
                queues += [
                    Queue(options.topic, name, number)
                    for number in range(data["write_queue_count"])
                ]
        if not queues:
            raise SourceError(f"no broker accepts messages of {options.topic}")
        return queues

    def _service(self, urls: Sequence[str]) -> Service:
        options = self._options
        return Service(
            urls,
            timeout=options.timeout_seconds,
            patience=options.patience_seconds,
            credentials=credentials_of(os.environ, options.files),
        )


def _body_json(body: bytes, *, is_json: bool) -> bytes:
    """Return a body in its JSON form: as the JSON value that was sent, else in base64.

    The value is copied as text, so its numbers keep their digits.
    """
    if is_json and _is_json(body):
        return b'{"json": %b}' % body
    return b'{"base64": "%b"}' % base64.b64encode(body)


def _is_json(body: bytes) -> bool:
    """Tell whether a broker accepts *body* as JSON: each member once, and valid by RFC 8259."""
    try:
        json.loads(body.decode(), object_pairs_hook=_members, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _members(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a member occurs twice")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is invalid according to RFC 8259")


def queue_index(sharding_key: str, queue_count: int) -> int:
    """Return the queue for a sharding key's messages, as all producers compute it.

    It is Java's ``String.hashCode``, and the absolute value of Java's remainder.
    """
    value = 0
    units = sharding_key.encode("utf-16-le", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "little")) & 0xFFFF_FFFF
    return abs(value - (1 << 32) if value & 0x8000_0000 else value) % queue_count
