"""``config/``: the state in the JSON files that RocketMQ keeps, written for it and read from it.

They are snapshots, never the truth: Eruca reads them once, from a store whose log holds no control
records because RocketMQ wrote it, and carries what they say into the log. After that it only
writes them, so that a RocketMQ broker can open the store.

Source: RocketMQ 5.3, ``TopicConfigManager``, ``ConsumerOffsetManager``,
``SubscriptionGroupManager``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from eruca_broker.core.events import CommittedOffset, OffsetsCommitted, TopicPut
from eruca_broker.core.state import BrokerState
from eruca_broker.store.directories import sync_directory

DIRECTORY: Final = "config"
_TOPICS: Final = "topics.json"
_OFFSETS: Final = "consumerOffset.json"
_GROUPS: Final = "subscriptionGroup.json"

_PERMISSION_BITS: Final[Mapping[str, int]] = {"rw": 6, "r": 4, "w": 2, "none": 0}
_PERMISSIONS: Final = {bits: name for name, bits in _PERMISSION_BITS.items()}
# RocketMQ writes a map's integer keys without quotes, which is no JSON.
_BARE_KEY: Final = re.compile(r"([{,]\s*)(-?\d+)\s*:")


class UnreadableConfigError(ValueError):
    """A file that RocketMQ left cannot be understood."""


def save(directory: Path, state: BrokerState, *, now_ms: int) -> None:
    """Write the three files; each replaces its predecessor at once or not at all.

    Raises:
        OSError: A file could not be written; its predecessor stands.
    """
    version = {"counter": state.version, "stateVersion": 0, "timestamp": now_ms}
    config = directory / DIRECTORY
    config.mkdir(exist_ok=True)
    topics = {
        topic.name: {
            "topicName": topic.name,
            "readQueueNums": topic.read_queue_count,
            "writeQueueNums": topic.write_queue_count,
            "perm": _PERMISSION_BITS[topic.permission],
            "order": topic.ordered,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "attributes": {},
        }
        for topic in state.topics.values()
    }
    offsets: dict[str, dict[str, int]] = {}
    for group in state.groups:
        for (topic, queue_id), offset in state.group_offsets(group).items():
            offsets.setdefault(f"{topic}@{group}", {})[str(queue_id)] = offset
    groups = {
        group: {"groupName": group, "consumeEnable": True, "consumeFromMinEnable": True}
        for group in state.groups
    }
    _write(config / _TOPICS, {"dataVersion": version, "topicConfigTable": topics})
    _write(config / _OFFSETS, {"dataVersion": version, "offsetTable": offsets})
    _write(
        config / _GROUPS,
        {"dataVersion": version, "forbiddenTable": {}, "subscriptionGroupTable": groups},
    )
    sync_directory(config)


def load(directory: Path) -> tuple[list[TopicPut], list[OffsetsCommitted]]:
    """Return what the files say of topics and offsets; a file that is missing says nothing.

    Raises:
        UnreadableConfigError: A file is there and cannot be understood.
    """
    config = directory / DIRECTORY
    topics = _read(config / _TOPICS).get("topicConfigTable", {})
    offsets = _read(config / _OFFSETS).get("offsetTable", {})
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
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableConfigError(f"{config}: not as RocketMQ writes it: {error!r}") from error
    return puts, [OffsetsCommitted(group, commits) for group, commits in by_group.items()]


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    try:
        content = json.loads(_BARE_KEY.sub(r'\1"\2":', text))
    except ValueError as error:
        raise UnreadableConfigError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UnreadableConfigError(f"{path} holds no object")
    return content


def _write(path: Path, content: Mapping[str, Any]) -> None:
    temporary = path.with_suffix(".json.new")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
