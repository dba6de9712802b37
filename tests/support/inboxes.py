"""Messages for inboxes, as a consumer gets them."""

from __future__ import annotations

from dataclasses import replace

from eruca.contract.properties import encode_properties
from eruca.contract.records import encode_record
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage
from support.records import example_record


def received(
    message_id: str | None = "ID", *, topic: str = "orders", offset: int = 1_000, **properties: str
) -> ReceivedMessage:
    """Return a message; *offset* says where in the log it lies."""
    known = {} if message_id is None else {"UNIQ_KEY": message_id}
    record = replace(
        example_record(topic=topic),
        log_offset=offset,
        properties=encode_properties({**known, **properties}),
    )
    raw = encode_record(record)
    return ReceivedMessage(MessageQueue(topic, "broker-a", 3), 5, raw, 0, len(raw))


def retry_of(message: ReceivedMessage, group: str) -> ReceivedMessage:
    """Return the copy of *message* that a group gets when it failed."""
    known = {} if message.message_id is None else {"UNIQ_KEY": message.message_id}
    return received(
        None,
        topic=f"%RETRY%{group}",
        offset=message.log_offset + 4_000,
        RETRY_TOPIC=message.topic,
        ORIGIN_MESSAGE_ID=message.offset_message_id,
        **known,
    )
