"""Send the rows of an export to a topic again, in batches (see :mod:`.sending`)."""

from __future__ import annotations

import base64
import json
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from eruca.exporting.columns import DAMAGE
from eruca.exporting.errors import SourceError
from eruca.exporting.ranges import Queue
from pyspark_eruca.replay_options import ReplayOptions
from pyspark_eruca.replayed import (
    REPLAY_ID_PROPERTY,
    REPLAY_ORIGIN_PROPERTY,
    Digests,
    replay_digest,
)
from pyspark_eruca.sending import TopicSender, queue_index
from pyspark_eruca.sink_batches import Batch, Batches, Lane

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


class ReplaySender:
    """Sends the rows of a replay, each once, in batches."""

    def __init__(self, options: ReplayOptions, known: Sequence[Digests]) -> None:
        self._options = options
        self._known = [digests for digests in known if len(digests)]
        self._topic = TopicSender(options, options.topic)
        self._batches = Batches()
        self._ids: dict[int, str] = {}  # of the rows that wait
        self._row = 0
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
        index = self._queue_index(row.get("sharding_key"), origin)
        self._ids[self._row] = digest.hex().upper()
        message = self._message(row, properties, text, self._ids[self._row])
        for batch in self._batches.add(Lane(self._options.topic, index), message, self._row):
            self._send(batch)
        self._row += 1

    def flush(self) -> None:
        """Send the remaining messages."""
        for batch in self._batches.rest():
            self._send(batch)

    def close(self) -> None:
        """Close the connections."""
        self._topic.close()

    def _message(
        self, row: Mapping[str, Any], properties: Mapping[str, str], origin: str, message_id: str
    ) -> bytes:
        own = {name: text for name, text in properties.items() if name not in RESERVED_PROPERTIES}
        own[REPLAY_ID_PROPERTY] = self._options.replay
        own[REPLAY_ORIGIN_PROPERTY] = origin
        message = {
            "tag": row.get("tag"),
            "keys": row.get("keys") or [],
            "properties": own,
            "sharding_key": row.get("sharding_key"),
            "message_id": message_id,
            "flag": row.get("flag") or 0,
        }
        body = _body_json(row["body"], is_json=properties.get(_BODY_FORMAT) == "json")
        return b'{"body": %b, %b' % (body, json.dumps(message).encode()[1:])

    def _refuse_loop(self, origin: str, earlier: str | None) -> None:
        came_from = {text.split("/")[0] for text in (origin, earlier) if text}
        if self._options.topic in came_from and not self._options.is_forced:
            raise SourceError(
                f"{origin} comes from {self._options.topic}, which is also the target: this"
                " would be a loop; to send it nevertheless, set force=true"
            )

    def _queue_index(self, sharding_key: str | None, origin: Queue) -> int:
        count = len(self._topic.queues)
        if sharding_key:
            return queue_index(sharding_key, count)
        return zlib.crc32(origin.text.encode()) % count

    def _send(self, batch: Batch) -> None:
        assert batch.lane.queue_index is not None
        ids = [self._ids.pop(row) for row in batch.rows]
        if self._topic.send(self._topic.queues[batch.lane.queue_index], ids, batch.texts):
            self.sent += len(ids)
        else:  # another attempt has just sent them
            self.skipped += len(ids)


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
