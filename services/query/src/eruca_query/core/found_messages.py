"""Messages as found in the read model and in the tails of the logs: without their bodies."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from eruca.contract.message_ids import encode_offset_id
from eruca.contract.names import (
    DEAD_LETTER_TOPIC_PREFIX,
    RETRY_TOPIC_PREFIX,
    is_system_topic,
)
from eruca.contract.properties import split_keys
from eruca.contract.queries import StoredMessage
from eruca.contract.records import NO_HOST, Host

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_LATEST: Final = datetime.max.replace(tzinfo=UTC)


class Position(NamedTuple):
    """A message's unique position among all messages: store time, then log offset and broker."""

    stored_ms: int
    log_offset: int
    broker_name: str


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message, its place in the log, and the values it can be found by."""

    broker_name: str
    store_host: Host | None  # None: unknown
    log_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    stored_ms: int
    born_ms: int
    size: int
    unique_id: str | None
    tag: bytes
    keys: bytes

    @property
    def position(self) -> Position:
        """Its position among all messages."""
        return Position(self.stored_ms, self.log_offset, self.broker_name)

    @property
    def offset_id(self) -> str:
        """Its offset id."""
        return encode_offset_id(self.store_host or NO_HOST, self.log_offset)

    @property
    def is_users(self) -> bool:
        """True if it is in a topic to which users send."""
        derived = self.topic.startswith((RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX))
        return not derived and not is_system_topic(self.topic)

    def has_key(self, key: bytes) -> bool:
        """Tell whether *key* is one of its keys."""
        return key in self.keys.split(b" ")

    def fields(self) -> dict[str, Any]:
        """Return the fields of :class:`StoredMessage`, as an answer shows them."""
        return {
            "message_id": self.unique_id,
            "offset_message_id": self.offset_id,
            "broker_name": self.broker_name,
            "log_offset": self.log_offset,
            "topic": self.topic,
            "queue_id": self.queue_id,
            "queue_offset": self.queue_offset,
            "tag": _text(self.tag) or None,
            "keys": split_keys(_text(self.keys)),
            "born_at": moment(self.born_ms),
            "stored_at": moment(self.stored_ms),
            "size": self.size,
        }

    def shown(self) -> StoredMessage:
        """Return it as an answer shows it."""
        return StoredMessage(**self.fields())


def moment(ms: int) -> datetime:
    """Return a time of the log; for an impossible date, the earliest or latest possible one."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return _EPOCH if ms < 0 else _LATEST


def ms_of(time: datetime) -> int:
    """Return a time in ms since the epoch, rounded down."""
    return (time - _EPOCH) // timedelta(milliseconds=1)


def ms_not_before(time: datetime) -> int:
    """Return a time in ms since the epoch, rounded up."""
    return -((_EPOCH - time) // timedelta(milliseconds=1))


def main_of(found: list[FoundMessage]) -> FoundMessage:
    """Return the message meant by an id that several have: the first that users see, if any."""
    ordered = sorted(found, key=lambda message: message.position)
    return next((message for message in ordered if message.is_users), ordered[0])


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
