"""A message to send: checked when it is made, read-only afterwards.

Whatever a broker would refuse is refused here, where the line that made the mistake is still on
the stack. An error names the field, the value and what to do.

The text of the properties is put together once, in the order TAGS, KEYS, UNIQ_KEY, others: the
first three are what a broker indexes, and it finds them fastest there. UNIQ_KEY's value is filled
in when the message is sent, so the text is kept in two parts around it.

Source: RocketMQ 5.3, ``Message``, ``Validators``, ``MessageConst``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, Self

import msgspec

from eruca.contract import names
from eruca.contract.errors import TooLargeError, ValidationError
from eruca.contract.limits import BODY_SIZE_MAX, PROPERTIES_SIZE_MAX, USER_PROPERTY_COUNT_MAX
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

MESSAGE_ID_SIZE_MAX: Final = 255  # characters, as the JSON contract
_RECORD_ROOM: Final = 192  # bytes left for a record's fields and an id made when it is sent
_ID_ROOM: Final = 64  # bytes left for an id that is made when the message is sent
_KEYS_NAME: Final = f"{KEYS}{NAME_SEPARATOR}"
_UNIQ_KEY_NAME: Final = f"{UNIQ_KEY}{NAME_SEPARATOR}"
_BEFORE_ID: Final = PROPERTY_SEPARATOR + _UNIQ_KEY_NAME
_NO_PROPERTIES: Final[Mapping[str, str]] = {}
_VALUE_SHOWN: Final = 60  # characters of a wrong value that an error repeats


class Message:
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

    Raises:
        ValidationError: A value is not allowed.
        TooLargeError: The body or the properties exceed their limit.
    """

    __slots__ = (
        "_body",
        "_flag",
        "_head",
        "_keys",
        "_message_id",
        "_properties",
        "_sharding_key",
        "_size",
        "_tag",
        "_tail",
        "_topic",
    )

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
    ) -> None:
        # Once per message: what most of them have is dealt with here, the rest by functions.
        _check_topic(topic)
        self._topic = topic
        self._body = body if body.__class__ is bytes and body else _checked_body(body)
        self._tag = tag
        self._sharding_key = sharding_key
        self._message_id = message_id
        self._flag = flag
        head = "" if tag is None else _head_of_tag(tag)
        if type(keys) is str and keys and keys.isprintable() and " " not in keys:
            self._keys: str | tuple[str, ...] = keys
            head = f"{head}{_KEYS_NAME}{keys}{_BEFORE_ID}"
        elif keys == ():
            self._keys = ()
            head += _UNIQ_KEY_NAME
        else:
            self._keys = several = _checked_keys(keys)
            head += _keys_text(several) + _UNIQ_KEY_NAME
        tail = PROPERTY_SEPARATOR
        self._properties = _NO_PROPERTIES
        if properties:
            self._properties = _checked_properties(properties)
        if sharding_key is not None or properties:
            tail += _tail_text(sharding_key, self._properties)
        self._head, self._tail = head, tail
        text_size = len(head) + len(tail)
        if not (head.isascii() and tail.isascii()):
            text_size *= 4  # bytes a character may take
        if flag:
            _check_flag(flag)
        if message_id is not None:
            _check_message_id(message_id)
            text_size += 4 * len(message_id)
        self._size = len(self._body) + text_size + len(topic) + _RECORD_ROOM
        if self._size > PROPERTIES_SIZE_MAX:
            self._check_sizes()

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
        )

    @property
    def topic(self) -> str:
        """Where it goes."""
        return self._topic

    @property
    def body(self) -> bytes:
        """What it says."""
        return self._body

    @property
    def keys(self) -> tuple[str, ...]:
        """What it can be found by."""
        return (self._keys,) if isinstance(self._keys, str) else self._keys

    @property
    def tag(self) -> str | None:
        """What consumers filter by."""
        return self._tag

    @property
    def properties(self) -> dict[str, str]:
        """The application's own names and values; a copy."""
        return dict(self._properties)

    @property
    def sharding_key(self) -> str | None:
        """What decides its queue."""
        return self._sharding_key

    @property
    def message_id(self) -> str | None:
        """The unique id it was given, or None: then one is made when it is sent."""
        return self._message_id

    @property
    def flag(self) -> int:
        """The application's number."""
        return self._flag

    def properties_text(self, message_id: str) -> str:
        """Return the stored text of all properties, with this unique id."""
        return self._head + message_id + self._tail

    def size_estimate(self) -> int:
        """Return about how many bytes it takes in a batch; no fewer than it does."""
        return self._size

    def __repr__(self) -> str:
        return (
            f"Message({self._topic!r}, {len(self._body)} bytes, tag={self._tag!r}, "
            f"keys={self.keys!r}, sharding_key={self._sharding_key!r})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return (self._topic, self._body, self._message_id, self._flag, self._head, self._tail)

    def _check_sizes(self) -> None:
        if len(self._body) > BODY_SIZE_MAX:
            raise TooLargeError(
                f"body: {len(self._body)} bytes exceed the {BODY_SIZE_MAX} of one message",
                fix="split it, or store it elsewhere and send where it is",
            )
        id_size = _ID_ROOM if self._message_id is None else len(self._message_id) * 4
        size = len((self._head + self._tail).encode()) + id_size
        if size > PROPERTIES_SIZE_MAX:
            raise TooLargeError(
                f"properties: {size} bytes with tag and keys exceed the {PROPERTIES_SIZE_MAX}"
                " of one message",
                fix="move what is long into the body",
            )


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
            f"topic: {_shown(topic)} is {fault.value.replace('_', ' ')}",
            fix="use up to 127 letters, digits, %, |, _ and -",
        )
    if names.is_send_forbidden(topic):
        raise ValidationError(
            f"topic: {topic!r} is written by the broker alone", fix="use a topic of your own"
        )


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
        _check_text(value, f"properties: {name}", "leave it out instead")
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
