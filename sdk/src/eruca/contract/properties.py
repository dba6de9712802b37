"""Message properties: the names that have a meaning in RocketMQ, and the stored text.

The text is ``name U+0001 value U+0002``, repeated, in UTF-8, at most 32 767 bytes. Neither name nor
value may contain U+0001 or U+0002.

Source: RocketMQ 5.3, ``MessageConst``, ``MessageDecoder.messageProperties2String`` and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAME_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
KEY_SEPARATOR: Final = " "

TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
SHARDING_KEY: Final = "__SHARDINGKEY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TIMER_DELAY_SECONDS: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DELETE_UNIQ_KEY: Final = "TIMER_DEL_UNIQKEY"
RETRY_TOPIC: Final = "RETRY_TOPIC"  # in a retry: the topic the message was sent to
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"  # in a retry: the offset id it had there
DEAD_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"  # the same, in a dead letter
DEAD_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
CHECKSUM: Final = "__CRC32#"  # of the whole record, at its end: see eruca.contract.records
TRANSACTION_PREPARED: Final = "TRAN_MSG"  # "true" in a half message
PRODUCER_GROUP: Final = "PGROUP"
TRANSACTION_ID: Final = "__transactionId__"
CHECK_IMMUNITY_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"  # in a half message stored again
# Eruca's own: the first place of a message that was sent back, and the reasons.
ORIGIN_QUEUE_ID: Final = "ERUCA_ORIGIN_QID"
ORIGIN_OFFSET: Final = "ERUCA_ORIGIN_OFFSET"
RETRY_REASON: Final = "ERUCA_RETRY_REASON"
RETRY_ERROR: Final = "ERUCA_RETRY_ERROR"
DEAD_REASON: Final = "ERUCA_DEAD_REASON"
DEAD_ERROR: Final = "ERUCA_DEAD_ERROR"
BODY_FORMAT: Final = "ERUCA_BODY_FORMAT"  # the body's form in the send, unless it was octets …
JSON_FORMAT: Final = "json"  # … a JSON value

TRACE_PARENT: Final = "traceparent"
TRACE_CONTEXT: Final = frozenset((TRACE_PARENT, "tracestate"))
"""Properties of the W3C trace context, which are not part of a message's content."""

# Names that users may not set: MessageConst's set, and internal names that it lacks.
# fmt: off
RESERVED: Final = frozenset((
    "TRACE_ON", "MSG_REGION", "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC",
    "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID",
    "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME",
    "UNIQ_KEY", "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "POP_CK",
    "POP_CK_OFFSET", "1ST_POP_TIME", "TRAN_PREPARED_QUEUE_OFFSET", "DUP_INFO", "INSTANCE_ID",
    "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER",
    "MSG_TYPE", "INNER_MULTI_QUEUE_OFFSET", "TIMER_DELAY_MS", "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES",
    "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "__BORNHOST", "BORN_TIMESTAMP",
    "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", CHECKSUM, "__SHARDINGKEY",
    "CHECK_IMMUNITY_TIME_IN_SECONDS", "__transactionId__", "TRANSACTION_CHECK_TIMES",
    "INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH", "REDIRECT", "TRACE_CONTEXT",
    ORIGIN_QUEUE_ID, ORIGIN_OFFSET, RETRY_REASON, RETRY_ERROR, DEAD_REASON, DEAD_ERROR,
    BODY_FORMAT,
))
# fmt: on


def encode_properties(properties: Mapping[str, str | None]) -> str:
    """Return the stored text of *properties*, in their order, without None values."""
    return "".join(
        f"{name}{NAME_SEPARATOR}{value}{PROPERTY_SEPARATOR}"
        for name, value in properties.items()
        if value is not None
    )


def decode_properties(text: str) -> dict[str, str]:
    """Return the properties in *text*; the last one of a name wins.

    Like RocketMQ's reader, it skips a fragment without a name or without a value. Unlike that
    reader, it also skips the record's checksum, which no user has set.
    """
    properties: dict[str, str] = {}
    for fragment in text.split(PROPERTY_SEPARATOR):
        name, _, value = fragment.partition(NAME_SEPARATOR)
        if name and value and name != CHECKSUM:
            properties[name] = value
    return properties


def split_keys(keys: str | None) -> list[str]:
    """Return the single keys of a KEYS value, without empty ones."""
    return [key for key in (keys or "").split(KEY_SEPARATOR) if key]
