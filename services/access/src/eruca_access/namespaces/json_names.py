"""Names in JSON: where the contract's bodies have them, and the same bodies with other names.

A member's name says whether its value is a topic, a group or something with one inside; it means
the same in every body of every service. ``tests/house/test_namespaces.py`` compares the tables with
all documents, so a new member with a name in it cannot be forgotten.

What a user has written is never changed: bodies of messages and properties of their own. A body in
JSON keeps even its spaces and its numbers, which a parser would round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from eruca.contract.properties import (
    DEAD_ORIGIN_TOPIC,
    PRODUCER_GROUP,
    REAL_TOPIC,
    RETRY_TOPIC,
)
from eruca.core.access.namespaces import Namespace

Change: TypeAlias = Callable[[str], str | None]
"""Returns a name's other form; None: it has none."""

TOPIC_MEMBERS: Final = frozenset({"topic", "origin_topic"})
GROUP_MEMBERS: Final = frozenset({"group", "producer_group"})
HANDLE_MEMBERS: Final = frozenset({"recall_handle"})
TOPIC_LISTS: Final = frozenset({"topics"})  # of texts, or of objects
TOPIC_KEYS: Final = frozenset({"topics_since"})  # an object whose members are called by topics
RESOURCE_MEMBERS: Final = frozenset({"resource"})
PROPERTIES: Final = "properties"  # of a message
USERS_OWN: Final = frozenset({"body"})
TOPIC_PROPERTIES: Final = frozenset({REAL_TOPIC, RETRY_TOPIC, DEAD_ORIGIN_TOPIC})
GROUP_PROPERTIES: Final = frozenset({PRODUCER_GROUP})


class OutsideError(Exception):
    """A name has no other form: an answer names something outside the namespace."""


class Changes(NamedTuple):
    """One direction: the change of each kind of names."""

    topic: Change
    group: Change
    recall_handle: Change
    resource: Change

    @classmethod
    def to_whole(cls, namespace: Namespace) -> Changes:
        """Return the changes of a request."""
        return cls(
            namespace.whole_topic,
            namespace.whole_group,
            namespace.whole_recall_handle,
            namespace.whole_resource,
        )

    @classmethod
    def to_short(cls, namespace: Namespace) -> Changes:
        """Return the changes of an answer; no answer has a resource but a refusal."""
        return cls(namespace.short_topic, namespace.short_group, namespace.short_recall_handle, str)

    def of(self, member: str) -> Change | None:
        """Return the change of the texts that a member, or a parameter, has; None: they stay."""
        if member in TOPIC_MEMBERS or member in TOPIC_LISTS:
            return self.topic
        if member in GROUP_MEMBERS:
            return self.group
        if member in HANDLE_MEMBERS:
            return self.recall_handle
        return self.resource if member in RESOURCE_MEMBERS else None

    def of_property(self, name: str) -> Change | None:
        """Return the change of a message's property; None: its value stays."""
        if name in TOPIC_PROPERTIES:
            return self.topic
        return self.group if name in GROUP_PROPERTIES else None


_DEPTH_MAX: Final = 32  # of a body; no operation has a name deeper
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)


def parsed(text: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON text as objects, arrays and texts; everything else stays as it is written.

    That is numbers, bodies of messages, and what is nested deeper than any name.

    Raises:
        msgspec.DecodeError: It is not JSON.
    """
    return _parsed(msgspec.Raw(text.strip()), 0)


def _parsed(text: msgspec.Raw, depth: int) -> Any:  # noqa: ANN401
    start = bytes(memoryview(text)[:1])
    if depth == _DEPTH_MAX:
        return text
    if start == b'"':
        return _TEXT.decode(text)
    if start == b"[":
        if b'"' not in memoryview(text).tobytes():
            return text  # without a text there is no name: many numbers
        return [_parsed(value, depth + 1) for value in _ARRAY.decode(text)]
    if start == b"{":
        return {
            name: value if name in USERS_OWN else _parsed(value, depth + 1)
            for name, value in _OBJECT.decode(text).items()
        }
    return text


def changed(value: Any, changes: Changes) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value with other names; entries of lists without one are left out.

    Raises:
        OutsideError: The value itself, not an entry of a list, has a name without another form.
    """
    if isinstance(value, dict):
        return {name: _member(name, inner, changes) for name, inner in value.items()}
    return _entries(value, changes, None) if isinstance(value, list) else value


def changed_properties(properties: Mapping[str, str], changes: Changes) -> dict[str, str]:
    """Return a message's properties with other names; those without one are left out."""
    found: dict[str, str] = {}
    for name, value in properties.items():
        change = changes.of_property(name)
        other = value if change is None or not isinstance(value, str) else change(value)
        if other is not None:
            found[name] = other
    return found


def _member(name: str, value: Any, changes: Changes) -> Any:  # noqa: ANN401
    if name in USERS_OWN:
        return value
    if isinstance(value, str):
        change = changes.of(name)
        return value if change is None else _required(change(value))
    if isinstance(value, list):
        return _entries(value, changes, changes.of(name))
    if isinstance(value, dict):
        if name == PROPERTIES:
            return changed_properties(value, changes)
        if name in TOPIC_KEYS:
            keys = {key: changes.topic(key) for key in value}
            return {keys[key]: inner for key, inner in value.items() if keys[key] is not None}
    return changed(value, changes)


def _entries(values: list[Any], changes: Changes, change: Change | None) -> list[Any]:
    found = []
    for value in values:
        try:
            if isinstance(value, str):
                found.append(value if change is None else _required(change(value)))
            else:
                found.append(changed(value, changes))
        except OutsideError:
            continue
    return found


def _required(name: str | None) -> str:
    if name is None:
        raise OutsideError
    return name
