"""``config/``: the state in the JSON files that RocketMQ keeps, written for it and read from it.

They are snapshots, never the truth: Eruca writes them so that a RocketMQ broker can open the store,
and reads only what RocketMQ wrote there, to carry it into the log. Which of them RocketMQ wrote is
told by a mark: Eruca's have a field of its own, which RocketMQ ignores and drops when it writes.

Source: RocketMQ 5.3, ``TopicConfigManager``, ``ConsumerOffsetManager``,
``SubscriptionGroupManager``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from eruca.contract.names import AUTO_CREATE_TOPIC
from eruca_broker.core.state.events import CommittedOffset, OffsetsCommitted, TopicPut
from eruca_broker.core.state.group_events import GroupPut, GroupSettings
from eruca_broker.core.state.group_state import Group, Queue
from eruca_broker.core.state.state import BrokerState, Topic
from eruca_broker.store.config import rocketmq_json
from eruca_broker.store.config.config_groups import group_config, group_puts
from eruca_broker.store.files.directories import replace_files

DIRECTORY: Final = "config"
_TOPICS: Final = "topics.json"
_OFFSETS: Final = "consumerOffset.json"
_GROUPS: Final = "subscriptionGroup.json"
MARK: Final = {"writtenBy": "eruca"}  # in each file that Eruca has written

_PERMISSION_BITS: Final[Mapping[str, int]] = {"rw": 6, "r": 4, "w": 2, "none": 0}
_PERMISSIONS: Final = {bits: name for name, bits in _PERMISSION_BITS.items()}


class UnreadableConfigError(ValueError):
    """A file that RocketMQ left cannot be understood."""


class ConfigSnapshot(NamedTuple):
    """What the files say, as it is at one moment, whatever changes thereafter."""

    now_ms: int
    version: int
    topics: tuple[Topic, ...]
    groups: dict[str, GroupSettings]
    offsets: dict[str, dict[Queue, int]]  # by group

    @classmethod
    def of(cls, state: BrokerState, *, now_ms: int) -> ConfigSnapshot:
        """Return what they say of *state*; it is copied, and not yet put into their words."""
        groups = state.groups.values()
        return cls(
            now_ms,
            state.version,
            tuple(state.topics.values()),
            {group.name: group.settings for group in groups},
            {group.name: dict(group.offsets) for group in groups if group.offsets},
        )

    def contents(self) -> dict[str, bytes]:
        """Return the files' contents by their names; of many offsets that takes its time."""
        version = {"counter": self.version, "stateVersion": 0, "timestamp": self.now_ms}
        common = {**MARK, "dataVersion": version}
        topics = {
            topic.name: _topic_config(topic)
            for topic in self.topics
            if topic.name != AUTO_CREATE_TOPIC  # RocketMQ's, with a permission we do not have
        }
        groups = {name: group_config(name, settings) for name, settings in self.groups.items()}
        offsets = _with_offsets(_encoded({**common, "offsetTable": {}}), self.offsets)
        return {
            _TOPICS: _encoded({**common, "topicConfigTable": topics}),
            _OFFSETS: offsets,
            _GROUPS: _encoded({**common, "forbiddenTable": {}, "subscriptionGroupTable": groups}),
        }


def save(directory: Path, snapshot: ConfigSnapshot) -> None:
    """Write the three files; each replaces its predecessor at once or not at all.

    Raises:
        OSError: A file could not be written; its predecessor stands.
    """
    replace_files(directory / DIRECTORY, snapshot.contents())


class Loaded(NamedTuple):
    """What the files say."""

    topics: list[TopicPut]
    groups: list[GroupPut]
    offsets: list[OffsetsCommitted]


def load(
    directory: Path, *, only_foreign: bool = False, known: Mapping[str, Group] | None = None
) -> Loaded:
    """Return what the files say; a file that is missing says nothing.

    Args:
        directory: The store's.
        only_foreign: Leave out what Eruca itself wrote.
        known: Groups as they are: what RocketMQ has no word for stays as it is.

    Raises:
        UnreadableConfigError: A file is there and cannot be understood.
    """
    config = directory / DIRECTORY
    read = _read_unless_marked if only_foreign else _read_or_backup
    topic_file, offset_file = read(config / _TOPICS), read(config / _OFFSETS)
    group_file = read(config / _GROUPS)
    topics = topic_file.get("topicConfigTable", {})
    offsets = offset_file.get("offsetTable", {})
    try:
        puts = [
            TopicPut(
                topic=name,
                read_queue_count=int(fields["readQueueNums"]),
                write_queue_count=int(fields["writeQueueNums"]),
                permission=_PERMISSIONS[int(fields["perm"]) & 6],
                ordered=bool(fields.get("order", False)),
            )
            for name, fields in topics.items()
        ]
        by_group: dict[str, list[CommittedOffset]] = {}
        for place, queues in offsets.items():
            topic, _, group = place.rpartition("@")
            by_group.setdefault(group, []).extend(
                CommittedOffset(topic, int(queue_id), int(offset))
                for queue_id, offset in queues.items()
            )
        groups = list(group_puts(group_file, known or {}))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableConfigError(f"{config}: not as RocketMQ writes it: {error!r}") from error
    commits = [OffsetsCommitted(group, commits) for group, commits in by_group.items()]
    return Loaded(puts, groups, commits)


def _read_unless_marked(path: Path) -> dict[str, Any]:
    content = _read(path)
    return {} if content.items() >= MARK.items() else content


def _read_or_backup(path: Path) -> dict[str, Any]:
    """Read a file, or what it replaced: RocketMQ writes in place, and may be killed at it."""
    backup = path.with_name(f"{path.name}.bak")
    if not path.exists():
        return _read(backup)
    try:
        return _read(path)
    except UnreadableConfigError:
        if backup.exists():
            return _read(backup)
        raise


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    try:
        content = rocketmq_json.decode(text)
    except ValueError as error:
        raise UnreadableConfigError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UnreadableConfigError(f"{path} holds no object")
    return content


def _topic_config(topic: Topic) -> dict[str, Any]:
    return {
        "topicName": topic.name,
        "readQueueNums": topic.read_queue_count,
        "writeQueueNums": topic.write_queue_count,
        "perm": _PERMISSION_BITS[topic.permission],
        "order": topic.ordered,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "attributes": {},
    }


def _with_offsets(empty: bytes, offsets: Mapping[str, Mapping[Queue, int]]) -> bytes:
    """Return the file whose table is *empty* with all offsets in it.

    They are encoded group by group: one call for all would let no other thread run meanwhile.
    """
    pieces: list[bytes] = []
    for group, positions in offsets.items():
        places: dict[str, dict[int, int]] = {}
        for (topic, queue_id), offset in positions.items():
            places.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        pieces.append(_encoded(places)[1:-2].replace(b"\n", b"\n "))  # without its braces
    if not pieces:
        return empty
    return empty.removesuffix(b"}\n}") + b",".join(pieces) + b"\n }\n}"


def _encoded(content: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=1)
