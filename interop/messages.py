"""Messages in one common form, whichever side stored or read them, so that they can be compared."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any

from eruca.contract import properties as names
from eruca.contract.properties import split_keys
from eruca.contract.records import Record

Place = tuple[str, int, int]  # topic, queue id, queue offset


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message before it is sent."""

    topic: str
    body: bytes
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    sharding_key: str | None = None
    flag: int = 0
    delay_level: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the message in the Java program's form."""
        return {
            "topic": self.topic,
            "body": b64encode(self.body).decode(),
            "tag": self.tag,
            "keys": list(self.keys),
            "properties": dict(self.properties),
            "sharding_key": self.sharding_key,
            "flag": self.flag,
            "delay_level": self.delay_level,
        }


@dataclass(frozen=True, slots=True)
class Receipt:
    """A sender's receipt: where its message was stored."""

    queue_id: int
    queue_offset: int
    message_id: str
    offset_message_id: str


@dataclass(frozen=True, slots=True)
class Origin:
    """The fields that a broker adds to a message, which its sender does not learn."""

    born_ms: int  # since the epoch
    born_host: str  # [IP]:port
    stored_ms: int
    store_host: str
    log_offset: int
    size: int  # bytes in the log


@dataclass(frozen=True, slots=True)
class Message:
    """A stored message: all fields that must be the same on both sides."""

    topic: str
    queue_id: int
    queue_offset: int
    message_id: str | None
    offset_message_id: str
    tag: str | None
    keys: tuple[str, ...]
    sharding_key: str | None
    properties: Mapping[str, str]  # the user's own
    body: bytes
    flag: int
    origin: Origin | None = None  # None for a message that was sent and not read yet

    @property
    def place(self) -> Place:
        """Topic, queue and queue offset."""
        return self.topic, self.queue_id, self.queue_offset


def host_text(ip: str, port: str | int) -> str:
    """Return an address in the common form for comparisons."""
    return f"[{ip_address(ip.strip('[]'))}]:{port}"


def stored(message: NewMessage, receipt: Receipt) -> Message:
    """Return the expected result of reading *message*."""
    return Message(
        topic=message.topic,
        queue_id=receipt.queue_id,
        queue_offset=receipt.queue_offset,
        message_id=receipt.message_id,
        offset_message_id=receipt.offset_message_id,
        tag=message.tag,
        keys=message.keys,
        sharding_key=message.sharding_key,
        properties=dict(message.properties),
        body=message.body,
        flag=message.flag,
    )


def by_place(messages: Iterable[Message]) -> dict[Place, Message]:
    """Return the messages by topic, queue and queue offset."""
    return {message.place: message for message in messages}


def message_of_properties(
    properties: Mapping[str, str],
    *,
    body: bytes,
    place: Place,
    offset_id: str,
    flag: int,
    origin: Origin,
) -> Message:
    """Build a message from its stored properties."""
    topic, queue_id, queue_offset = place
    return Message(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        message_id=properties.get(names.UNIQ_KEY),
        offset_message_id=offset_id,
        tag=properties.get(names.TAGS),
        keys=tuple(split_keys(properties.get(names.KEYS))),
        sharding_key=properties.get(names.SHARDING_KEY),
        properties={
            name: value for name, value in properties.items() if name not in names.RESERVED
        },
        body=body,
        flag=flag,
        origin=origin,
    )


def message_of_row(row: Mapping[str, Any]) -> Message:
    """Build a message from a row of RocketMQ's client."""
    return message_of_properties(
        row["properties"],
        body=b64decode(row["body"]),
        place=(row["topic"], row["queue_id"], row["queue_offset"]),
        offset_id=row["offset_message_id"] or row["message_id"],
        flag=row["flag"],
        origin=Origin(
            born_ms=row["born_timestamp"],
            born_host=host_text(*row["born_host"].rsplit(":", 1)),
            stored_ms=row["store_timestamp"],
            store_host=host_text(*row["store_host"].rsplit(":", 1)),
            log_offset=row["log_offset"],
            size=row["size"],
        ),
    )


def message_of_record(record: Record, body: bytes, offset_id: str) -> Message:
    """Build a message from a record of the log; *body* is already decompressed."""
    return message_of_properties(
        record.property_map(),
        body=body,
        place=(record.topic, record.queue_id, record.queue_offset),
        offset_id=offset_id,
        flag=record.flag,
        origin=Origin(
            born_ms=record.born_timestamp,
            born_host=host_text(record.born_host.ip, record.born_host.port),
            stored_ms=record.store_timestamp,
            store_host=host_text(record.store_host.ip, record.store_host.port),
            log_offset=record.log_offset,
            size=record.size,
        ),
    )


def receipts_of_batch(row: Mapping[str, Any]) -> list[Receipt]:
    """Return one receipt per message from a row of RocketMQ's client."""
    if row["status"] != "SEND_OK":
        raise ValueError(f"RocketMQ did not store a message: {row}")
    ids = row["message_id"].split(",")
    offset_ids = row["offset_message_id"].split(",")
    return [
        Receipt(row["queue_id"], row["queue_offset"] + index, message_id, offset_id)
        for index, (message_id, offset_id) in enumerate(zip(ids, offset_ids, strict=True))
    ]


def without_message_id(message: Message) -> Message:
    """Return *message* without its unique id, for cases in which that differs."""
    return replace(message, message_id=None)


def as_sent(message: Message) -> Message:
    """Return *message* without the fields that its sender does not learn."""
    return replace(message, origin=None)
