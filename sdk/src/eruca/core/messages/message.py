"""A message to send: checked when it is made, read-only afterwards.

Whatever a broker would refuse is refused here, where the line that made the mistake is still on
the stack. An error names the field, the value and what to do.

The text of the properties has the order TAGS, KEYS, UNIQ_KEY, others: the first three are what a
broker indexes, and it finds them fastest there. UNIQ_KEY's value is known when the message is sent.

Most messages are *plain*: a body of moderate size, at most one short key in ASCII, a topic and a
tag that have been seen before, and nothing else. One look tells so when such a message is made; its
text is put together when its batch is, for all messages at once. The others are checked field by
field, and keep their text. A message that is to be delivered later is never plain.

Source: RocketMQ 5.3, ``Message``, ``Validators``, ``MessageConst``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from msgspec.structs import force_setattr

from eruca.contract import names
from eruca.contract.errors import SystemTopicError, TooLargeError, ValidationError
from eruca.contract.limits import (
    BODY_SIZE_MAX,
    DELAY_LEVEL_MAX,
    DELAY_SECONDS_MAX,
    PROPERTIES_SIZE_MAX,
    USER_PROPERTY_COUNT_MAX,
)
from eruca.contract.properties import (
    KEY_SEPARATOR,
    KEYS,
    NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    RESERVED,
    SHARDING_KEY,
    TAGS,
    UNIQ_KEY,
)
from eruca.contract.records import V1_TOPIC_SIZE_MAX

MESSAGE_ID_SIZE_MAX: Final = 255  # characters, as the JSON contract
PLAIN_TEXT_SIZE_MAX: Final = 64  # characters of a plain message's key, and of its tag
PLAIN_BODY_SIZE_MAX: Final = 64 * 1024  # bytes
_RECORD_ROOM: Final = 192  # bytes left for a record's fields and an id made when it is sent
_PLAIN_ROOM: Final = _RECORD_ROOM + V1_TOPIC_SIZE_MAX + 2 * PLAIN_TEXT_SIZE_MAX  # but the body
_ID_ROOM: Final = 64  # bytes left for an id that is made when the message is sent
_KEYS_NAME: Final = f"{KEYS}{NAME_SEPARATOR}"
_UNIQ_KEY_NAME: Final = f"{UNIQ_KEY}{NAME_SEPARATOR}"
BEFORE_ID: Final = f"{PROPERTY_SEPARATOR}{_UNIQ_KEY_NAME}"  # between a key and the unique id
_VALUE_SHOWN: Final = 60  # characters of a wrong value that an error repeats
_KNOWN_MAX: Final = 4_096  # topics, and tags, that are remembered as sound

# What plain messages may have; only ever added to, so threads may share them.
_plain_topics: set[str] = set()
_plain_tags: set[str | None] = {None}


class PropertiesText(msgspec.Struct, gc=False, frozen=True):
    """The stored text of a message's properties around its unique id."""

    head: str
    tail: str
    record_size: int  # bytes, by estimate, of all the record
    is_delayed: bool = False  # whether the message is delivered later


class _Details(msgspec.Struct, frozen=True, gc=False, eq=False, kw_only=True):
    """What a message may have besides topic and body; as it was given, until it is checked."""

    keys: tuple[str, ...] = ()
    tag: str | None = None
    properties: Mapping[str, str] | None = None
    sharding_key: str | None = None
    message_id: str | None = None
    flag: int = 0
    deliver_at: datetime | None = None
    delay_seconds: float | None = None
    delay_level: int | None = None
    _text: PropertiesText | None = None  # of a message that is not plain


# The field itself: by its name a message hands out a copy.
_properties_field: Final[Any] = _Details.properties
_given_properties: Final = _properties_field.__get__


class Message(_Details, frozen=True, gc=False, eq=False):
    """A message to send; its attributes are read-only.

    Args:
        topic: Where to.
        body: Bytes as they are, or text, which is stored as UTF-8; see :meth:`json` for values.
        keys: What to find it by later, as RocketMQ's KEYS: one key or several, none with a blank.
        tag: What consumers filter by; one at most.
        properties: The application's own names and values.
        sharding_key: Messages of one key go to one queue, and so stay in order.
        message_id: The unique id; one is made where it is None.
        flag: A 32-bit number of the application's own.
        deliver_at: When it is delivered, to the millisecond; a time that has passed delays nothing.
        delay_seconds: How long after it has been stored, by the broker's clock; instead of a time.
        delay_level: The same by one of RocketMQ's 18 levels, 1 second to 2 hours; instead of both.

    Raises:
        ValidationError: A value is not allowed.
        SystemTopicError: The topic is the system's: the broker alone writes there.
        TooLargeError: The body or the properties exceed their limit.
    """

    topic: str
    body: bytes

    if TYPE_CHECKING:  # more is taken than is kept

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
        keys: object = self.keys
        body = self.body
        if (
            self.topic in _plain_topics
            and self.tag in _plain_tags
            and body.__class__ is bytes
            and 0 < len(body) <= PLAIN_BODY_SIZE_MAX
            and _given_properties(self) is None
            and self.sharding_key is None
            and self.message_id is None
            and self.flag == 0
            and self.deliver_at is None
            and self.delay_seconds is None
            and self.delay_level is None
            and self._text is None  # else it is made of another, by msgspec.structs.replace
        ):
            if keys == ():
                return
            if (
                isinstance(keys, str)
                and 0 < len(keys) <= PLAIN_TEXT_SIZE_MAX
                and keys.isascii()
                and keys.isprintable()
                and " " not in keys
            ):
                force_setattr(self, "keys", (keys,))
                return
        self._check()

    def _check(self) -> None:
        """Check field by field, and bring everything into the form that is kept."""
        topic, given_body, keys, tag = self.topic, self.body, self.keys, self.tag
        _check_topic(topic)
        body = _checked_body(given_body)
        head = "" if tag is None else _head_of_tag(tag)
        checked_keys = _checked_keys(keys)
        head += _keys_text(checked_keys) + _UNIQ_KEY_NAME
        properties = _checked_properties(_given_properties(self) or {})
        tail = PROPERTY_SEPARATOR + _tail_text(self.sharding_key, properties)
        _check_flag(self.flag)
        if self.message_id is not None:
            _check_message_id(self.message_id)
        is_delayed = _checked_delay(self.deliver_at, self.delay_seconds, self.delay_level)
        text_size = len(head) + len(tail) + len(self.message_id or "")
        if not (head.isascii() and tail.isascii()):
            text_size *= 4  # bytes a character may take
        size = len(body) + text_size + len(topic) + _RECORD_ROOM
        if size > PROPERTIES_SIZE_MAX:
            _check_sizes(body, head + tail, self.message_id)
        force_setattr(self, "body", body)
        force_setattr(self, "keys", checked_keys)
        _properties_field.__set__(self, properties or None)
        _remember(topic, tag)
        is_plain = (
            topic in _plain_topics
            and tag in _plain_tags
            and len(body) <= PLAIN_BODY_SIZE_MAX
            and len(checked_keys) <= 1
            and all(len(key) <= PLAIN_TEXT_SIZE_MAX and key.isascii() for key in checked_keys)
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

        *value* is anything msgspec encodes (dicts, lists, dataclasses, Structs, datetimes …) or a
        pydantic model.
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
        )

    @property  # type: ignore[misc]
    def properties(self) -> dict[str, str]:
        """The application's own names and values; a copy."""
        return dict(_given_properties(self) or {})

    @property
    def is_delayed(self) -> bool:
        """Whether it is to be delivered later than it is stored."""
        return self._text is not None and self._text.is_delayed

    def properties_text(self, message_id: str) -> str:
        """Return the stored text of all properties, with this unique id."""
        text = self._text
        if text is not None:
            return f"{text.head}{message_id}{text.tail}"
        tag, keys = self.tag, self.keys
        head = "" if tag is None else _head_of_tag(tag)
        if keys:
            return f"{head}{_KEYS_NAME}{keys[0]}{BEFORE_ID}{message_id}{PROPERTY_SEPARATOR}"
        return f"{head}{_UNIQ_KEY_NAME}{message_id}{PROPERTY_SEPARATOR}"

    def size_estimate(self) -> int:
        """Return about how many bytes it takes in a batch; no fewer than it does."""
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
    """Return the estimate of each; the same as asking each, and faster."""
    return [
        len(message.body) + _PLAIN_ROOM if (text := message._text) is None else text.record_size
        for message in messages
    ]


def any_delayed(messages: Iterable[Message]) -> bool:
    """Tell whether one of *messages* is to be delivered later."""
    texts = [text for message in messages if (text := message._text) is not None]
    return any(text.is_delayed for text in texts)


def _check_sizes(body: bytes, text: str, message_id: str | None) -> None:
    if len(body) > BODY_SIZE_MAX:
        raise TooLargeError(
            f"body: {len(body)} bytes exceed the {BODY_SIZE_MAX} of one message",
            fix="split it, or store it elsewhere and send where it is",
        )
    id_size = _ID_ROOM if message_id is None else len(message_id) * 4
    size = len(text.encode()) + id_size
    if size > PROPERTIES_SIZE_MAX:
        raise TooLargeError(
            f"properties: {size} bytes with tag and keys exceed the {PROPERTIES_SIZE_MAX}"
            " of one message",
            fix="move what is long into the body",
        )


def _remember(topic: str, tag: str | None) -> None:
    """Let messages of this topic, and with this tag, be plain."""
    if len(topic) <= V1_TOPIC_SIZE_MAX and len(_plain_topics) < _KNOWN_MAX:
        _plain_topics.add(topic)
    is_plain = tag is None or (len(tag) <= PLAIN_TEXT_SIZE_MAX and tag.isascii())
    if is_plain and len(_plain_tags) < _KNOWN_MAX:
        _plain_tags.add(tag)


@lru_cache(maxsize=4096)
def _check_topic(topic: str) -> None:
    if not isinstance(topic, str):
        raise ValidationError(f"topic: {topic!r} is not a text", fix="give the topic's name")
    fault = names.client_topic_fault(topic)
    derived = topic.startswith((names.RETRY_TOPIC_PREFIX, names.DEAD_LETTER_TOPIC_PREFIX))
    if derived:
        fault = names.broker_topic_fault(topic)
    if fault is not None:
        raise ValidationError(
            f"topic: {_shown(topic)} {fault.said}",
            fix=names.TOPIC_NAME_FIX,
        )
    if names.is_system_topic(topic):
        raise SystemTopicError(f"topic {topic!r} belongs to the system")


def _checked_body(body: object) -> bytes:
    if isinstance(body, str):
        try:
            data = body.encode()
        except UnicodeEncodeError as error:
            raise ValidationError(
                f"body: not encodable as UTF-8: {error.reason} at {error.start}",
                fix="send bytes, or text without lone surrogates",
            ) from None
    elif isinstance(body, (bytes, bytearray, memoryview)):
        data = bytes(body)
    else:
        raise ValidationError(
            f"body: {type(body).__name__} is neither bytes nor text",
            fix="use Message.json for other values",
        )
    if not data:
        raise ValidationError(
            "body: it is empty", fix="say something, if only a single byte; RocketMQ refuses it"
        )
    return data


def _checked_keys(keys: object) -> tuple[str, ...]:
    several: tuple[object, ...]
    if isinstance(keys, str):
        several = (keys,)  # or each of its letters would be a key
    elif isinstance(keys, Iterable):
        several = tuple(keys)
    else:
        raise ValidationError(f"keys: {_shown(keys)} is no list of keys", fix='such as ["id-7"]')
    checked: list[str] = []
    for key in several:
        # No control character or other blank is printable, and no lone surrogate either.
        if not isinstance(key, str) or not key or " " in key or not key.isprintable():
            raise ValidationError(
                f"keys: {_shown(key)} is not a key",
                fix="a key is a text of at least one character, without blanks",
            )
        checked.append(key)
    return tuple(checked)


def _checked_properties(properties: Mapping[str, str]) -> Mapping[str, str]:
    if len(properties) > USER_PROPERTY_COUNT_MAX:
        raise ValidationError(
            f"properties: {len(properties)} of them exceed the {USER_PROPERTY_COUNT_MAX} allowed"
        )
    checked = dict(properties)
    for name, value in checked.items():
        _check_text(name, "properties: name", "give it a plain name")
        if name in RESERVED:
            raise ValidationError(
                f"properties: {name!r} has a meaning of its own and cannot be set",
                fix="choose another name; tag, keys and sharding_key are arguments of Message",
            )
        _check_text(value, f"properties: {name}", "write it as a text, or leave it out")
    return checked


@lru_cache(maxsize=1024)
def _head_of_tag(tag: str) -> str:
    _check_text(tag, "tag", "use a short word, or None")
    if "|" in tag or tag != tag.strip() or not tag.isprintable():
        raise ValidationError(
            f"tag: {_shown(tag)} holds a |, a control character or a blank at an end",
            fix="no filter could ask for it: use a plain word, one tag per message",
        )
    return f"{TAGS}{NAME_SEPARATOR}{tag}{PROPERTY_SEPARATOR}"


def _keys_text(keys: tuple[str, ...]) -> str:
    if not keys:
        return ""
    return f"{_KEYS_NAME}{KEY_SEPARATOR.join(keys)}{PROPERTY_SEPARATOR}"


def _tail_text(sharding_key: str | None, properties: Mapping[str, str]) -> str:
    text = ""
    if sharding_key is not None:
        _check_text(sharding_key, "sharding_key", "or leave it out")
        text = f"{SHARDING_KEY}{NAME_SEPARATOR}{sharding_key}{PROPERTY_SEPARATOR}"
    for name, value in properties.items():
        text += f"{name}{NAME_SEPARATOR}{value}{PROPERTY_SEPARATOR}"
    return text


def _check_message_id(message_id: str) -> None:
    _check_text(message_id, "message_id", "or leave it out")
    if len(message_id) > MESSAGE_ID_SIZE_MAX or message_id.split() != [message_id]:
        raise ValidationError(
            f"message_id: {_shown(message_id)} holds a blank or more than"
            f" {MESSAGE_ID_SIZE_MAX} characters"
        )


def _check_flag(flag: int) -> None:
    if not isinstance(flag, int) or not -(2**31) <= flag < 2**31:
        raise ValidationError(f"flag: {_shown(flag)} is not a signed 32-bit number")


def _checked_delay(
    deliver_at: datetime | None, delay_seconds: float | None, delay_level: int | None
) -> bool:
    """Return whether a delivery is to be later, if it is said in one way and a sound one."""
    given = {"deliver_at": deliver_at, "delay_seconds": delay_seconds, "delay_level": delay_level}
    ways = [name for name, value in given.items() if value is not None]
    if not ways:
        return False
    if len(ways) > 1:
        raise ValidationError(f"{' and '.join(ways)} exclude each other", fix="give one of them")
    if deliver_at is not None and (
        not isinstance(deliver_at, datetime) or deliver_at.tzinfo is None
    ):
        raise ValidationError(
            f"deliver_at: {_shown(deliver_at)} is no time with a zone",
            fix="such as datetime.now(UTC) + timedelta(minutes=30)",
        )
    if delay_seconds is not None and not (
        isinstance(delay_seconds, (int, float)) and 0 <= delay_seconds <= DELAY_SECONDS_MAX
    ):
        raise ValidationError(
            f"delay_seconds: {_shown(delay_seconds)} is not within 0 to {DELAY_SECONDS_MAX:.0f}"
        )
    if delay_level is not None and not (
        isinstance(delay_level, int) and 1 <= delay_level <= DELAY_LEVEL_MAX
    ):
        raise ValidationError(
            f"delay_level: {_shown(delay_level)} is not within 1 to {DELAY_LEVEL_MAX}"
        )
    return True


def _check_text(text: object, what: str, fix: str) -> None:
    if isinstance(text, str):
        if text and text.isprintable() and not text.isspace():
            return  # nearly all of them
        fault = _text_fault(text)
    else:
        fault = "is not a text"
    if fault is not None:
        raise ValidationError(f"{what}: {_shown(text)} {fault}", fix=fix)


def _text_fault(text: str) -> str | None:
    if not text.strip():
        return "is blank"
    if NAME_SEPARATOR in text or PROPERTY_SEPARATOR in text:
        return "holds U+0001 or U+0002, which part properties"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds a lone surrogate"
    return None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _VALUE_SHOWN else f"{text[:_VALUE_SHOWN]}…"
