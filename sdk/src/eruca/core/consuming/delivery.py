"""A delivery: a message under a lease, and the handle that acknowledges it.

Brokers send deliveries as JSON. This module rebuilds the message's record from the answer, so the
message is the same object that other consumers get. It lacks only the system's own properties,
which the answer does not contain.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import UNSET

from eruca.contract import properties as names
from eruca.contract.messages import PulledBody, PulledMessage
from eruca.contract.records import Host, Record, SysFlag, encode_record
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage

if TYPE_CHECKING:
    from eruca.contract.deliveries import Delivery as WireDelivery

_FORMATS: Final = {
    "lz4": int(SysFlag.COMPRESSION_LZ4),
    "zstd": int(SysFlag.COMPRESSION_ZSTD),
    "zlib": int(SysFlag.COMPRESSION_ZLIB),
}


_T = TypeVar("_T")


class Delivery(msgspec.Struct, frozen=True, eq=False):
    """A message under a lease."""

    message: ReceivedMessage
    attempt: int  # deliveries of the message so far, this one included
    visible_at: datetime  # end of the lease, unless it is extended
    handle: str  # opaque to clients
    broker_name: str
    invisible_seconds: float  # as requested; the default for extending
    kept_until: float  # as visible_at, by this process's monotonic clock

    def __repr__(self) -> str:
        return f"Delivery({self.message!r}, attempt={self.attempt})"


def delivery_of(
    wire: WireDelivery, broker_name: str, invisible_seconds: float, *, now: float
) -> Delivery:
    """Return a delivery for programs; *now* is the monotonic time of its answer.

    Raises:
        ValueError: The answer is invalid.
    """
    queue = MessageQueue(wire.message.topic, broker_name, wire.message.queue_id)
    retried = wire.attempt - 1 - (wire.message.reconsume_times or 0)
    return Delivery(
        received_message(wire.message, queue, retried),
        wire.attempt,
        datetime.fromisoformat(wire.visible_at),
        wire.handle,
        broker_name,
        invisible_seconds,
        now + invisible_seconds,
    )


def received_message(
    message: PulledMessage, queue: MessageQueue, retried: int = 0
) -> ReceivedMessage:
    """Return a message of a JSON answer as consumers receive it.

    Args:
        message: The message in the answer.
        queue: The message's queue.
        retried: Number of redeliveries that its record does not count.

    Raises:
        ValueError: The answer is invalid.
    """
    if message.damage is not None:
        told = f"at log offset {message.log_offset}: {message.damage}"
        return ReceivedMessage.damaged(queue, message.queue_offset, told)
    body, flags = _stored_body(_known(message.body))
    record = encode_record(
        Record(
            topic=queue.topic,
            body=body,
            queue_id=queue.queue_id,
            flag=_known(message.flag),
            queue_offset=message.queue_offset,
            log_offset=message.log_offset,
            sys_flag=flags,
            born_timestamp=_ms(_known(message.born_at)),
            born_host=Host.from_text(_known(message.born_host)),
            store_timestamp=_ms(_known(message.stored_at)),
            store_host=Host.from_text(_known(message.store_host)),
            reconsume_times=_known(message.reconsume_times),
            properties=names.encode_properties(_properties(message)),
        )
    )
    return ReceivedMessage(queue, message.queue_offset, record, 0, len(record), None, retried)


def _properties(message: PulledMessage) -> dict[str, str]:
    told = {
        names.KEYS: names.KEY_SEPARATOR.join(message.keys),
        names.TAGS: message.tag,
        names.SHARDING_KEY: message.sharding_key,
        names.UNIQ_KEY: message.message_id,
    }
    if message.body is not None and message.body.json is not UNSET:
        told[names.BODY_FORMAT] = names.JSON_FORMAT
    return message.properties | {name: text for name, text in told.items() if text}


def _stored_body(body: PulledBody) -> tuple[bytes, int]:
    """Return the body's bytes and their compression flags."""
    content = body.octets()
    if body.compression is None:
        return content, 0
    return content, int(SysFlag.COMPRESSED) | _FORMATS.get(body.compression, 0)


def _known(value: _T | None) -> _T:
    """Return *value*; only a damaged message lacks it."""
    if value is None:
        raise ValueError("an undamaged message lacks a field")
    return value


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)
