"""From JSON to the log: a client's message becomes a record; the broker's fields are still zero.

This module checks everything that JSON's schema cannot express. So no message enters the log that
could not be distinguished, filtered or found later. No text contains the two characters that
separate stored properties. A key contains no blank, because keys are stored joined by blanks. A tag
can be subscribed to. A property has a name that is not reserved, and a value.

Source: RocketMQ 5.3, ``Validators``, ``MessageAccessor``, ``MessageDecoder``; its gRPC proxy's
rules for tags.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple

import msgspec
from isal import isal_zlib
from msgspec import UNSET

from eruca.contract import properties as names
from eruca.contract.errors import TooLargeError, ValidationError
from eruca.contract.hashing import queue_of_hash, string_hash
from eruca.contract.limits import BODY_SIZE_MAX, KEY_SIZE_MAX, PROPERTIES_SIZE_MAX, RECORDS_SIZE_MAX
from eruca.contract.messages import Body, NewMessage
from eruca.contract.records import (
    BODY_CRC_MASK,
    CHECKSUM_ROOM,
    MAGIC_V1,
    MAGIC_V2,
    V1_TOPIC_SIZE_MAX,
    Host,
    RecordLayout,
    SysFlag,
    layout_of,
)

_TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."  # RocketMQ strips these before it stores

_TAG, _KEYS, _SHARDING_KEY, _UNIQUE, _BODY_FORMAT = (
    name + names.NAME_SEPARATOR
    for name in (
        names.TAGS,
        names.KEYS,
        names.SHARDING_KEY,
        names.UNIQ_KEY,
        names.BODY_FORMAT,
    )
)
_END: Final = names.PROPERTY_SEPARATOR
_SEPARATORS: Final = names.NAME_SEPARATOR + names.PROPERTY_SEPARATOR
_CHECKSUM_ROOM: Final = CHECKSUM_ROOM.encode()

_crc32 = isal_zlib.crc32  # about ten times zlib's speed at 1 KiB


class Octets(Body, frozen=True):
    """A body that came as the request's own body, and not in JSON."""

    octets: bytes = b""


class Encoded(NamedTuple):
    """Messages as records; each list has an element for each message, in order."""

    records: list[bytes]
    unique_ids: list[str]


def encode_messages(
    messages: Sequence[NewMessage],
    *,
    pointers: Sequence[str],
    topic: str,
    queue_id: int,
    born_host: Host,
    store_host: Host,
    now_ms: int,
    next_unique_id: Callable[[], str],
) -> Encoded:
    """Return the records of *messages*.

    Args:
        messages: At least one.
        pointers: The place of each message in the request: ``/body``, ``/body/messages/0`` ….
        topic: Their topic.
        queue_id: Their queue.
        born_host: The peer's address.
        store_host: The broker's; only its family matters here, for the room it needs.
        now_ms: The born timestamp; a JSON client's clock is not used.
        next_unique_id: Makes an id for a message without one.

    Raises:
        ValidationError: A message is invalid; ``errors`` points at the place.
        TooLargeError: A body, a message's properties or the whole exceeds its limit.
    """
    layout, sys_flag, no_store_address = _room_for(born_host.is_v6, store_host.is_v6)
    magic, topic_part = _topic_part(topic)
    records: list[bytes] = []
    unique_ids: list[str] = []
    total_size = bodies_size = 0
    for message, pointer in zip(messages, pointers, strict=True):
        body = body_bytes(message.body, pointer)
        unique_id = message.message_id or next_unique_id()
        properties = stored_properties(message, unique_id, pointer) + _CHECKSUM_ROOM
        size = layout.body + len(body) + len(topic_part) + 2 + len(properties)
        header = layout.header.pack(
            size,
            magic,
            _crc32(body) & BODY_CRC_MASK,
            queue_id,
            message.flag,
            0,
            0,
            sys_flag,
            now_ms,
            born_host.address,
            born_host.port,
            0,
            no_store_address,
            0,
            0,
            0,
            len(body),
        )
        records.append(
            b"".join((header, body, topic_part, len(properties).to_bytes(2, "big"), properties))
        )
        unique_ids.append(unique_id)
        bodies_size += len(body)
        total_size += size
        if bodies_size > BODY_SIZE_MAX or total_size > RECORDS_SIZE_MAX:
            raise TooLargeError(
                f"the bodies exceed {BODY_SIZE_MAX} bytes, or the records {RECORDS_SIZE_MAX}",
                fix="send fewer messages at once",
            )
    return Encoded(records, unique_ids)


def body_bytes(body: Body, pointer: str) -> bytes:
    """Return the bytes of a body.

    Raises:
        ValidationError: The body does not have exactly one form, is empty, or is invalid in its
            form.
        TooLargeError: It exceeds the limit.
    """
    if isinstance(body, Octets):
        raw, place = body.octets, "/body"
    else:
        raw, place = _named_bytes(body, pointer), f"{pointer}/body"
    if not raw:
        raise _fault(place, "the body is empty; the minimum is 1 byte")
    if len(raw) > BODY_SIZE_MAX:
        raise TooLargeError(
            f"the body has {len(raw)} bytes; the maximum is {BODY_SIZE_MAX}",
            fix="split the body, or store it elsewhere and send its address",
        )
    return raw


def _named_bytes(body: Body, pointer: str) -> bytes:
    text, json, base64 = body.text, body.json, body.base64
    if (text is UNSET) + (json is UNSET) + (base64 is UNSET) != 2:
        raise ValidationError.at(
            f"{pointer}/body",
            "expected exactly one of text, json and base64",
            fix='give one form, such as {"body": {"text": "hello"}}',
        )
    if text is not UNSET:
        raw = text.encode()
    elif json is not UNSET:
        raw = msgspec.json.format(bytes(json), indent=-1)
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise _fault(f"{pointer}/body/json", "it is not UTF-8") from error
    else:
        assert base64 is not UNSET
        try:
            raw = binascii.a2b_base64(base64, strict_mode=True)
        except ValueError as error:  # binascii.Error, or a character beyond ASCII
            raise _fault(f"{pointer}/body/base64", f"it is not base64: {error}") from error
    return raw


def stored_properties(message: NewMessage, unique_id: str, pointer: str) -> bytes:
    """Return the stored text of a message's properties, without the record's checksum.

    Raises:
        ValidationError: A property is invalid.
        TooLargeError: Together they exceed the limit.
    """
    text = ""
    count = 1
    if message.tag is not None:  # in front, where it is found soonest
        _check_tag(message.tag, f"{pointer}/tag")
        text = f"{_TAG}{message.tag}{_END}"
        count += 1
    if message.properties:
        for name, value in message.properties.items():
            _check_property(name, value, pointer)
        text += names.encode_properties(message.properties)
        count += len(message.properties)
    if message.keys:
        _check_keys(message.keys, f"{pointer}/keys")
        text += f"{_KEYS}{names.KEY_SEPARATOR.join(message.keys)}{_END}"
        count += 1
    if message.sharding_key is not None:
        if not message.sharding_key.strip():
            raise _fault(f"{pointer}/sharding_key", "it is blank")
        text += f"{_SHARDING_KEY}{message.sharding_key}{_END}"
        count += 1
    if message.body.json is not UNSET:
        text += f"{_BODY_FORMAT}{names.JSON_FORMAT}{_END}"
        count += 1
    if message.message_id is not None and message.message_id.split() != [message.message_id]:
        raise _fault(f"{pointer}/message_id", "it contains a blank")
    if message.message_id is not None and not message.message_id.strip("."):
        # In a URL's path it would name another place.
        raise _fault(f"{pointer}/message_id", "it consists of dots; add a letter or a digit")
    text += f"{_UNIQUE}{unique_id}{_END}"
    # Each property brings one of either separator; any more are inside a name or a value.
    if text.count(names.NAME_SEPARATOR) != count or text.count(names.PROPERTY_SEPARATOR) != count:
        raise _fault_of_character(message, pointer, _SEPARATORS)
    if "\0" in text:
        raise _fault_of_character(message, pointer, "\0")
    encoded = text.encode()
    if len(encoded) > PROPERTIES_SIZE_MAX:
        raise TooLargeError(
            f"tag, keys, ids and properties take {len(encoded)} bytes together; the maximum is "
            f"{PROPERTIES_SIZE_MAX}"
        )
    return encoded


def _fault_of_character(message: NewMessage, pointer: str, refused: str) -> ValidationError:
    """Return the error for a message in which a text contains one of the characters *refused*."""
    said = {
        "tag": message.tag,
        "sharding_key": message.sharding_key,
        "message_id": message.message_id,
    }
    said |= {f"keys/{index}": key for index, key in enumerate(message.keys)}
    said |= {_member(name): f"{name}{value}" for name, value in message.properties.items()}
    place = next(
        place for place, text in said.items() if text and not set(refused).isdisjoint(text)
    )
    characters = " or ".join(f"U+{ord(character):04X}" for character in refused)
    return ValidationError.at(
        f"{pointer}/{place}",
        f"it must not contain {characters}",
        fix="remove that character, or put the value into the body",
    )


def queue_of_sharding_keys(
    messages: Sequence[NewMessage], pointers: Sequence[str], queue_count: int
) -> int | None:
    """Return the queue, of so many, that the sharding keys select; None without a key.

    Raises:
        ValidationError: The messages of a batch, which is stored in one queue, select several.
    """
    selected: int | None = None
    for message, pointer in zip(messages, pointers, strict=True):
        if message.sharding_key is None:
            continue
        queue_id = queue_of_hash(string_hash(message.sharding_key), queue_count)
        if selected is not None and queue_id != selected:
            raise _fault(
                f"{pointer}/sharding_key",
                "it selects another queue than an earlier message's; a batch goes to one queue",
            )
        selected = queue_id
    return selected


@cache
def _room_for(born_is_v6: bool, store_is_v6: bool) -> tuple[RecordLayout, int, bytes]:  # noqa: FBT001
    """Return layout, sys flag and an empty store address for hosts of these families."""
    sys_flag = SysFlag.BORN_HOST_V6 if born_is_v6 else SysFlag(0)
    sys_flag |= SysFlag.STORE_HOST_V6 if store_is_v6 else SysFlag(0)
    layout = layout_of(sys_flag)
    return layout, int(sys_flag), bytes(layout.store_host_size - 4)


@lru_cache(maxsize=1024)
def _topic_part(topic: str) -> tuple[int, bytes]:
    """Return the magic of a topic's records, and the topic with its length in front."""
    raw = topic.encode()
    if len(raw) > V1_TOPIC_SIZE_MAX:
        return MAGIC_V2, len(raw).to_bytes(2, "big") + raw
    return MAGIC_V1, len(raw).to_bytes(1, "big") + raw


def _check_property(name: str, value: str, pointer: str) -> None:
    place = f"{pointer}/{_member(name)}"
    if not name.strip() or not value.strip():
        raise _fault(place, "a property's name and value must not be blank")
    if name in names.RESERVED or name.startswith(_TRANSIENT_PREFIX):
        raise _fault(place, "the name is reserved; tag, keys and sharding_key have their fields")


def _member(name: str) -> str:
    """Return the path of a property in a message, as RFC 6901 writes it."""
    return f"properties/{name.replace('~', '~0').replace('/', '~1')}"


def _check_keys(keys: Sequence[str], pointer: str) -> None:
    for index, key in enumerate(keys):
        if key.split() != [key]:
            raise _fault(f"{pointer}/{index}", "a key must not contain a blank")
        _check_size(key, f"{pointer}/{index}")


def _check_tag(tag: str, pointer: str) -> None:
    if tag != tag.strip() or not tag or "|" in tag:
        raise _fault(pointer, "a tag must not start or end with a blank, nor contain |")
    _check_size(tag, pointer)


def _check_size(word: str, pointer: str) -> None:
    if len(word) > KEY_SIZE_MAX:
        raise _fault(pointer, f"it has {len(word)} characters; the maximum is {KEY_SIZE_MAX}")


def _fault(pointer: str, detail: str) -> ValidationError:
    return ValidationError.at(pointer, detail)
