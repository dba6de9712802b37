"""The fields of a message to send: their rules, and their stored text.

An error names the field, the value and the fix. No property text contains U+0001 or U+0002, because
these separate properties in a record.

Source: RocketMQ 5.3, ``Validators``, ``MessageConst``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import ceil
from typing import Final

from eruca.contract import names
from eruca.contract.errors import (
    DerivedTopicError,
    SystemTopicError,
    TooLargeError,
    ValidationError,
)
from eruca.contract.errors.shown import shown
from eruca.contract.limits import (
    BODY_SIZE_MAX,
    DELAY_LEVEL_MAX,
    DELAY_SECONDS_MAX,
    KEY_SIZE_MAX,
    MESSAGE_ID_SIZE_MAX,
    PROPERTIES_SIZE_MAX,
    USER_PROPERTY_COUNT_MAX,
)
from eruca.contract.properties import (
    DELAY,
    KEY_SEPARATOR,
    KEYS,
    NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    RESERVED,
    SHARDING_KEY,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
)

KEYS_NAME: Final = f"{KEYS}{NAME_SEPARATOR}"
_ID_ROOM: Final = 64  # bytes reserved for an id that is generated when the message is sent
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MS: Final = timedelta(milliseconds=1)
_VALUE_SHOWN: Final = 60  # characters of an invalid value that an error quotes


def check_destination(topic: str) -> None:
    """Raise an error if a client must not send to *topic*."""
    if not isinstance(topic, str):
        raise ValidationError(
            f"topic: expected a text, found {_shown(topic)}", fix="give the topic's name"
        )
    _check_destination(topic)


@lru_cache(maxsize=4096)
def _check_destination(topic: str) -> None:
    if names.is_derived_topic(topic):
        raise DerivedTopicError.of(topic)
    if (fault := names.client_topic_fault(topic)) is not None:
        raise ValidationError(
            f"topic: {_shown(topic)} {fault.said}",
            fix=names.TOPIC_NAME_FIX,
        )
    if names.is_system_topic(topic):
        raise SystemTopicError(f"topic {topic!r} is a system topic")


def checked_body(body: object) -> bytes:
    """Return a body in its stored form."""
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
            f"body: expected bytes or text, found {type(body).__name__}",
            fix="use Message.json for other values",
        )
    if not data:
        raise ValidationError(
            "body: expected at least one byte, found none",
            fix="send at least one byte, because RocketMQ refuses an empty body",
        )
    return data


def checked_keys(keys: object) -> tuple[str, ...]:
    """Return the keys, which may be given as one text or as several."""
    several: tuple[object, ...]
    if isinstance(keys, str):
        several = (keys,)  # otherwise each of its letters would be a key
    elif isinstance(keys, Iterable):
        several = tuple(keys)
    else:
        raise ValidationError(
            f"keys: expected a list of keys, found {_shown(keys)}", fix='use keys such as ["id-7"]'
        )
    checked: list[str] = []
    for key in several:
        # isprintable() also excludes control characters, other blanks and lone surrogates.
        if not isinstance(key, str) or not key or " " in key or not key.isprintable():
            raise ValidationError(
                f"keys: expected a text without blanks, found {_shown(key)}",
                fix="use a text of at least one character, without blanks",
            )
        _check_size("keys", key)
        checked.append(key)
    return tuple(checked)


def checked_properties(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return a copy of the application's own properties."""
    if not isinstance(properties, Mapping):
        raise ValidationError(
            f"properties: expected a mapping of texts, found {_shown(properties)}",
            fix='use properties such as {"city": "Rome"}',
        )
    if len(properties) > USER_PROPERTY_COUNT_MAX:
        raise ValidationError(
            f"properties: expected at most {USER_PROPERTY_COUNT_MAX}, found {len(properties)}"
        )
    checked = dict(properties)
    for name, value in checked.items():
        _check_text(name, "properties: name", "give it a plain name")
        if name in RESERVED:
            raise ValidationError(
                f"properties: the name {name!r} is reserved",
                fix="choose another name; tag, keys and sharding_key are arguments of Message",
            )
        _check_text(value, f"properties: {name}", "convert it to a text, or omit it")
    return checked


def head_of_tag(tag: str) -> str:
    """Return the stored text of a tag, which is the first property."""
    if not isinstance(tag, str):
        _check_text(tag, "tag", "use a short word, or None")
    return _head_of_tag(tag)


@lru_cache(maxsize=1024)
def _head_of_tag(tag: str) -> str:
    _check_text(tag, "tag", "use a short word, or None")
    if "|" in tag or tag != tag.strip() or not tag.isprintable():
        raise ValidationError(
            f"tag: {_shown(tag)} contains a |, a control character or a blank at an end",
            fix="no filter could select it: use a plain word, one tag per message",
        )
    _check_size("tag", tag)
    return f"{TAGS}{NAME_SEPARATOR}{tag}{PROPERTY_SEPARATOR}"


def keys_text(keys: tuple[str, ...]) -> str:
    """Return the stored text of keys."""
    if not keys:
        return ""
    return f"{KEYS_NAME}{KEY_SEPARATOR.join(keys)}{PROPERTY_SEPARATOR}"


def tail_text(sharding_key: str | None, properties: Mapping[str, str]) -> str:
    """Return the stored text of the properties after the unique id."""
    text = ""
    if sharding_key is not None:
        _check_text(sharding_key, "sharding_key", "or omit it")
        text = f"{SHARDING_KEY}{NAME_SEPARATOR}{sharding_key}{PROPERTY_SEPARATOR}"
    for name, value in properties.items():
        text += f"{name}{NAME_SEPARATOR}{value}{PROPERTY_SEPARATOR}"
    return text


def check_message_id(message_id: str) -> None:
    """Raise ValidationError if *message_id* is invalid as a unique id."""
    _check_text(message_id, "message_id", "or omit it")
    if len(message_id) > MESSAGE_ID_SIZE_MAX or message_id.split() != [message_id]:
        raise ValidationError(
            f"message_id: {_shown(message_id)} contains a blank or more than"
            f" {MESSAGE_ID_SIZE_MAX} characters"
        )
    if not message_id.strip("."):  # in a URL's path it would mean another path
        raise ValidationError(
            f"message_id: {_shown(message_id)} consists of dots only", fix="add a letter or a digit"
        )


def check_flag(flag: int) -> None:
    """Raise ValidationError if *flag* does not fit into a record."""
    if not isinstance(flag, int) or not -(2**31) <= flag < 2**31:
        raise ValidationError(f"flag: expected a signed 32-bit number, found {_shown(flag)}")


def checked_delay(
    deliver_at: datetime | None, delay_seconds: float | None, delay_level: int | None
) -> bool:
    """Return whether a delivery is delayed; raise ValidationError for an invalid delay."""
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
            f"deliver_at: expected a time with a time zone, found {_shown(deliver_at)}",
            fix="use a time such as datetime.now(UTC) + timedelta(minutes=30)",
        )
    if delay_seconds is not None and not (
        isinstance(delay_seconds, (int, float)) and 0 <= delay_seconds <= DELAY_SECONDS_MAX
    ):
        raise ValidationError(
            f"delay_seconds: expected 0 to {DELAY_SECONDS_MAX:.0f}, found {_shown(delay_seconds)}"
        )
    if delay_level is not None and not (
        isinstance(delay_level, int) and 1 <= delay_level <= DELAY_LEVEL_MAX
    ):
        raise ValidationError(
            f"delay_level: expected 1 to {DELAY_LEVEL_MAX}, found {_shown(delay_level)}"
        )
    return True


def delay_text(
    deliver_at: datetime | None, delay_seconds: float | None, delay_level: int | None
) -> str:
    """Return the stored request of a checked delay; empty if there is none.

    A batch of records has it, and JSON the fields themselves.
    """
    if deliver_at is not None:
        name, value = TIMER_DELIVER_MS, max(-((_EPOCH - deliver_at) // _MS), 0)  # not before it
    elif delay_seconds is not None:
        name, value = TIMER_DELAY_MS, ceil(delay_seconds * 1000)
    elif delay_level is not None:
        name, value = DELAY, delay_level
    else:
        return ""
    return f"{name}{NAME_SEPARATOR}{value}{PROPERTY_SEPARATOR}"


def check_sizes(body: bytes, text: str, message_id: str | None) -> None:
    """Raise TooLargeError if the body or *text*, all properties except the id, is too large."""
    if len(body) > BODY_SIZE_MAX:
        raise TooLargeError(
            f"body: expected at most {BODY_SIZE_MAX} bytes, found {len(body)}",
            fix="split it, or store it elsewhere and send its address",
        )
    id_size = _ID_ROOM if message_id is None else len(message_id) * 4
    size = len(text.encode()) + id_size
    if size > PROPERTIES_SIZE_MAX:
        raise TooLargeError(
            f"properties: expected at most {PROPERTIES_SIZE_MAX} bytes with tag and keys, found"
            f" {size}",
            fix="move long values into the body",
        )


def _check_size(what: str, word: str) -> None:
    if len(word) > KEY_SIZE_MAX:
        raise ValidationError(
            f"{what}: expected at most {KEY_SIZE_MAX} characters, found {len(word)} in"
            f" {_shown(word)}",
            fix="move long values into the body, and use a hash as the key",
        )


def _check_text(text: object, what: str, fix: str) -> None:
    if isinstance(text, str):
        if text and text.isprintable() and not text.isspace():
            return  # the usual case
        fault = _text_fault(text)
    else:
        fault = "is not a text"
    if fault is not None:
        raise ValidationError(f"{what}: {_shown(text)} {fault}", fix=fix)


def _text_fault(text: str) -> str | None:
    if not text.strip():
        return "is blank"
    if NAME_SEPARATOR in text or PROPERTY_SEPARATOR in text:
        return "contains U+0001 or U+0002, which separate properties"
    if "\0" in text:
        return "contains U+0000, which ends texts in other programs"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "contains a lone surrogate"
    return None


def _shown(value: object) -> str:
    return shown(repr(value), _VALUE_SHOWN)
