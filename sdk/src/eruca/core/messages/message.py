"""A message to send: checked when it is created, read-only afterwards.

The constructor refuses every value that a broker would refuse, so the traceback contains the line
with the mistake. :mod:`eruca.core.messages.message_fields` has the rules of each field.

The text of the properties has the order TAGS, KEYS, UNIQ_KEY, others, delay. A broker indexes the
first three, and finds them fastest at the beginning. The value of UNIQ_KEY is known when the
message is sent.

Most messages are *plain*: a body of moderate size, at most one short key in ASCII, a known topic
and tag, and no other field. One check at creation detects this. The text of plain messages is built
with their batch, for all messages at once. Other messages are checked field by field, and store
their text. A delayed message is never plain.

Source: RocketMQ 5.3, ``Message``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from msgspec.structs import force_setattr

from eruca.contract.limits import PROPERTIES_SIZE_MAX
from eruca.contract.properties import (
    BODY_FORMAT,
    JSON_FORMAT,
    NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    UNIQ_KEY,
)
from eruca.contract.records import V1_TOPIC_SIZE_MAX
from eruca.core.messages.message_fields import (
    KEYS_NAME,
    check_destination,
    check_flag,
    check_message_id,
    check_sizes,
    checked_body,
    checked_delay,
    checked_keys,
    checked_properties,
    delay_text,
    head_of_tag,
    keys_text,
    tail_text,
)

PLAIN_TEXT_SIZE_MAX: Final = 64  # characters of a plain message's key, and of its tag
PLAIN_BODY_SIZE_MAX: Final = 64 * 1024  # bytes
_RECORD_ROOM: Final = 212  # bytes reserved for a record's fields, checksum, and generated id
_PLAIN_ROOM: Final = _RECORD_ROOM + V1_TOPIC_SIZE_MAX + 2 * PLAIN_TEXT_SIZE_MAX  # without the body
_UNIQ_KEY_NAME: Final = f"{UNIQ_KEY}{NAME_SEPARATOR}"
BEFORE_ID: Final = f"{PROPERTY_SEPARATOR}{_UNIQ_KEY_NAME}"  # between a key and the unique id
_JSON_MARK: Final = f"{BODY_FORMAT}{NAME_SEPARATOR}{JSON_FORMAT}{PROPERTY_SEPARATOR}"
_SEVERAL: Final = (list, tuple)
_KNOWN_MAX: Final = 4_096  # topics, and tags, that are remembered as valid

# Valid in plain messages; entries are only added, so threads may share them.
_plain_topics: set[str] = set()
_plain_tags: set[str | None] = {None}


class PropertiesText(msgspec.Struct, gc=False, frozen=True):
    """The stored text of a message's properties around its unique id."""

    head: str
    tail: str
    record_size: int  # bytes of the whole record, estimated
    is_delayed: bool = False  # whether the message is delivered later


class _Details(msgspec.Struct, frozen=True, gc=False, eq=False, kw_only=True):
    """Optional fields of a message, as the program passes them, until they are checked."""

    keys: tuple[str, ...] = ()
    tag: str | None = None
    properties: Mapping[str, str] | None = None
    sharding_key: str | None = None
    message_id: str | None = None
    flag: int = 0
    deliver_at: datetime | None = None
    delay_seconds: float | None = None
    delay_level: int | None = None
    _text: PropertiesText | None = None  # None for a plain message
    _is_json: bool = False  # whether the body was made from a JSON value


_properties_field: Final[Any] = _Details.properties


class Message(_Details, frozen=True, gc=False, eq=False):
    """A message to send; its attributes are read-only.

    Args:
        topic: The target topic.
        body: Bytes, or text, which is stored as UTF-8; see :meth:`json` for other values.
        keys: Words to find it by, RocketMQ's KEYS: one key or several, without blanks.
        tag: A word that consumers filter by; at most one.
        properties: The application's own names and values.
        sharding_key: Messages with the same one go to one queue, and so stay in order.
        message_id: The unique id; None: it is generated.
        flag: A 32-bit number of the application.
        deliver_at: Delivery time, to the millisecond; a time in the past causes no delay.
        delay_seconds: Delay after storing, by the broker's clock; excludes *deliver_at*.
        delay_level: One of RocketMQ's 18 delay levels, 1 second to 2 hours; excludes the other two.

    Raises:
        ValidationError: A value is not allowed.
        SystemTopicError: The topic is a system topic: only the broker writes to it.
        TooLargeError: The body or the properties exceed their limit.

    ``msgspec.structs.replace`` makes a changed copy, and checks it with msgspec 0.21 or later.
    Earlier versions copy without checking: create a new message there.
    """

    topic: str
    body: bytes

    _given_properties = _properties_field  # as it is stored: `properties` returns a copy

    if TYPE_CHECKING:  # it accepts more types than it stores

        def __init__(
            self,
            topic: str,
            body: bytes | bytearray | memoryview | str,
            *,
            keys: str | Iterable[str] = (),
            tag: str | None = None,
            properties: Mapping[str, str] | None = None,
            sharding_key: str | None = None,
            message_id: str | None = None,
            flag: int = 0,
            deliver_at: datetime | None = None,
            delay_seconds: float | None = None,
            delay_level: int | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        # A plain message needs no further check. One runs for each message: no call but these.
        body = self.body
        try:
            if (
                self.topic in _plain_topics
                and self.tag in _plain_tags
                and body.__class__ is bytes
                and 0 < len(body) <= PLAIN_BODY_SIZE_MAX
                and self._given_properties is None
                and self.sharding_key is None
                and self.message_id is None
                and self.flag == 0
                and self.deliver_at is None
                and self.delay_seconds is None
                and self.delay_level is None
                and not self._is_json
                and self._text is None  # else it is a copy by msgspec.structs.replace
            ):
                keys: Any = self.keys
                key = keys
                if keys.__class__ in _SEVERAL and len(keys) == 1:
                    (key,) = keys
                if key.__class__ is str:
                    if (
                        0 < len(key) <= PLAIN_TEXT_SIZE_MAX
                        and key.isascii()
                        and key.isprintable()
                        and " " not in key
                    ):
                        force_setattr(self, "keys", (key,))
                        return
                elif keys == ():
                    return
        except TypeError:
            pass  # an unhashable topic or tag is not a text: reported below
        self._check()

    def _check(self) -> None:
        """Check field by field, and convert the fields to their stored form."""
        topic, tag = self.topic, self.tag
        check_destination(topic)
        body = checked_body(self.body)
        head = "" if tag is None else head_of_tag(tag)
        keys = checked_keys(self.keys)
        head += keys_text(keys) + _UNIQ_KEY_NAME
        properties = checked_properties(self._given_properties or {})
        tail = PROPERTY_SEPARATOR + tail_text(self.sharding_key, properties)
        if self._is_json:
            tail += _JSON_MARK
        check_flag(self.flag)
        if self.message_id is not None:
            check_message_id(self.message_id)
        delay = (self.deliver_at, self.delay_seconds, self.delay_level)
        is_delayed = checked_delay(*delay)
        if is_delayed:
            tail += delay_text(*delay)  # the last one, where a broker expects it
        text_size = len(head) + len(tail) + len(self.message_id or "")
        if not (head.isascii() and tail.isascii()):
            text_size *= 4  # maximum bytes of a character
        size = len(body) + text_size + len(topic) + _RECORD_ROOM
        if size > PROPERTIES_SIZE_MAX:
            check_sizes(body, head + tail, self.message_id)
        force_setattr(self, "body", body)
        force_setattr(self, "keys", keys)
        _properties_field.__set__(self, properties or None)
        _remember(topic, tag)
        is_plain = (
            topic in _plain_topics
            and tag in _plain_tags
            and len(body) <= PLAIN_BODY_SIZE_MAX
            and len(keys) <= 1
            and all(len(key) <= PLAIN_TEXT_SIZE_MAX and key.isascii() for key in keys)
            and tail == PROPERTY_SEPARATOR
            and self.message_id is None
            and self.flag == 0
            and not is_delayed
        )
        text = None if is_plain else PropertiesText(head, tail, size, is_delayed)
        force_setattr(self, "_text", text)

    @classmethod
    def json(
        cls,
        topic: str,
        value: object,
        *,
        keys: str | Iterable[str] = (),
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        message_id: str | None = None,
        flag: int = 0,
        deliver_at: datetime | None = None,
        delay_seconds: float | None = None,
        delay_level: int | None = None,
    ) -> Self:
        """Return a message whose body is *value* as JSON.

        *value* is any value that msgspec encodes (dicts, lists, dataclasses, Structs, datetimes …)
        or a pydantic model. Readers over HTTP get the value, not a text.
        """
        to_json = getattr(value, "model_dump_json", None)
        body = to_json() if callable(to_json) else msgspec.json.encode(value)
        return cls(
            topic,
            body,
            keys=keys,
            tag=tag,
            properties=properties,
            sharding_key=sharding_key,
            message_id=message_id,
            flag=flag,
            deliver_at=deliver_at,
            delay_seconds=delay_seconds,
            delay_level=delay_level,
            _is_json=True,  # type: ignore[call-arg]  # nobody else may say so
        )

    @property  # type: ignore[misc]
    def properties(self) -> dict[str, str]:
        """The application's own names and values; a copy."""
        return dict(self._given_properties or {})

    @property
    def is_json(self) -> bool:
        """True if the body was made from a JSON value, by :meth:`json`."""
        return self._is_json

    @property
    def is_delayed(self) -> bool:
        """True if the message has a delivery time or a delay."""
        return self._text is not None and self._text.is_delayed

    def properties_text(self, message_id: str) -> str:
        """Return the stored text of all properties, with this unique id."""
        text = self._text
        if text is not None:
            return f"{text.head}{message_id}{text.tail}"
        tag, keys = self.tag, self.keys
        head = "" if tag is None else head_of_tag(tag)
        if keys:
            return f"{head}{KEYS_NAME}{keys[0]}{BEFORE_ID}{message_id}{PROPERTY_SEPARATOR}"
        return f"{head}{_UNIQ_KEY_NAME}{message_id}{PROPERTY_SEPARATOR}"

    def size_estimate(self) -> int:
        """Return the estimated bytes in a batch; at least the actual number."""
        text = self._text
        return len(self.body) + _PLAIN_ROOM if text is None else text.record_size

    def __repr__(self) -> str:
        return (
            f"Message({self.topic!r}, {len(self.body)} bytes, tag={self.tag!r}, "
            f"keys={self.keys!r}, sharding_key={self.sharding_key!r})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        delay = (self.deliver_at, self.delay_seconds, self.delay_level)
        return (self.topic, self.body, self.message_id, self.flag, self.properties_text(""), delay)


def size_estimates(messages: Iterable[Message]) -> list[int]:
    """Return the estimate of each message; faster than single calls."""
    return [
        len(message.body) + _PLAIN_ROOM if (text := message._text) is None else text.record_size
        for message in messages
    ]


def any_delayed(messages: Iterable[Message]) -> bool:
    """Tell whether one of *messages* is delayed."""
    texts = [text for message in messages if (text := message._text) is not None]
    return any(text.is_delayed for text in texts)


def _remember(topic: str, tag: str | None) -> None:
    """Allow messages with this topic and this tag to be plain."""
    if len(topic) <= V1_TOPIC_SIZE_MAX and len(_plain_topics) < _KNOWN_MAX:
        _plain_topics.add(topic)
    is_plain = tag is None or (len(tag) <= PLAIN_TEXT_SIZE_MAX and tag.isascii())
    if is_plain and len(_plain_tags) < _KNOWN_MAX:
        _plain_tags.add(tag)
