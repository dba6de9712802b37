"""``config/``: the state as RocketMQ's JSON files, written for RocketMQ and read from it.

The files are snapshots, never the truth. Eruca writes them so that a RocketMQ broker can open the
store. It reads only files that RocketMQ wrote, to carry their content into the log. A mark
distinguishes the two: Eruca's files have an extra field, which RocketMQ ignores and drops.

Source: RocketMQ 5.3, ``TopicConfigManager``, ``ConsumerOffsetManager``,
``SubscriptionGroupManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from eruca.contract.names import AUTO_CREATE_TOPIC, broker_topic_fault
from eruca_broker.core.state.events import CommittedOffset, OffsetsCommitted, TopicPut
from eruca_broker.core.state.group_events import GroupPut, GroupSettings
from eruca_broker.core.state.group_state import Group, Queue
from eruca_broker.core.state.state import BrokerState, Topic
from eruca_broker.store.config.config_groups import group_config, group_puts
from eruca_broker.store.config.rocketmq_json import (
    UnreadableConfigError,
    read_object,
    read_object_or_backup,
)
from eruca_broker.store.files.small_files import replace_files

DIRECTORY: Final = "config"
_TOPICS: Final = "topics.json"
_OFFSETS: Final = "consumerOffset.json"
_GROUPS: Final = "subscriptionGroup.json"
DELAY_OFFSETS: Final = "delayOffset.json"  # see :mod:`.delay_offsets`
MARK: Final = {"writtenBy": "eruca"}  # in each file that Eruca has written

_PERMISSION_BITS: Final[Mapping[str, int]] = {"rw": 6, "r": 4, "w": 2, "none": 0}
_PERMISSIONS: Final = {bits: name for name, bits in _PERMISSION_BITS.items()}
_INT_MAX: Final = 2**31 - 1  # of Java's int, which RocketMQ's counts are
_LONG_MAX: Final = 2**63 - 1

logger = structlog.get_logger(__name__)


class ConfigSnapshot(NamedTuple):
    """The contents of the files at one moment, independent of later changes."""

    now_ms: int
    version: int
    topics: tuple[Topic, ...]
    groups: dict[str, GroupSettings]
    offsets: dict[str, dict[Queue, int]]  # by group

    @classmethod
    def of(cls, state: BrokerState, *, now_ms: int) -> ConfigSnapshot:
        """Return the content for *state*, as a copy that is not converted yet."""
        groups = state.groups.values()
        return cls(
            now_ms,
            state.version,
            tuple(state.topics.values()),
            {group.name: group.settings for group in groups},
            {group.name: dict(group.offsets) for group in groups if group.offsets},
        )

    def contents(self) -> dict[str, bytes]:
        """Return the files' contents by name; with many offsets this takes time."""
        version = {"counter": self.version, "stateVersion": 0, "timestamp": self.now_ms}
        common = {**MARK, "dataVersion": version}
        topics = {
            topic.name: _topic_config(topic)
            for topic in self.topics
            if topic.name != AUTO_CREATE_TOPIC  # RocketMQ's; it has a permission unknown to Eruca
        }
        groups = {name: group_config(name, settings) for name, settings in self.groups.items()}
        offsets = _with_offsets(_encoded({**common, "offsetTable": {}}), self.offsets)
        return {
            _TOPICS: _encoded({**common, "topicConfigTable": topics}),
            _OFFSETS: offsets,
            _GROUPS: _encoded({**common, "forbiddenTable": {}, "subscriptionGroupTable": groups}),
        }


def save(directory: Path, snapshot: ConfigSnapshot) -> None:
    """Write the three files; each replaces its predecessor completely or not at all.

    Raises:
        OSError: A file could not be written; its predecessor remains.
    """
    replace_files(directory / DIRECTORY, snapshot.contents())


class Loaded(NamedTuple):
    """The parsed contents of the files."""

    topics: list[TopicPut]
    groups: list[GroupPut]
    offsets: list[OffsetsCommitted]


def load(directory: Path, known: Mapping[str, Group] | None = None) -> Loaded:
    """Return the content of a store's files, no matter who wrote them; skip missing files.

    In an imported store this content exists nowhere else. So a file that RocketMQ was writing when
    it was killed is read from its backup, and damage is an error.

    Args:
        directory: The store's directory.
        known: The present groups: settings that RocketMQ's format lacks are kept from them.

    Raises:
        UnreadableConfigError: A file exists and cannot be parsed.
    """
    config = directory / DIRECTORY
    return Loaded(
        _topics(read_object_or_backup(config / _TOPICS)),
        _groups(read_object_or_backup(config / _GROUPS), known or {}),
        _offsets(read_object_or_backup(config / _OFFSETS)),
    )


def load_changes(
    directory: Path, known: Mapping[str, Group], *, was_rocketmqs: bool = False
) -> Loaded:
    """Return the content that RocketMQ has written into the files since Eruca did.

    A damaged file is assumed to be Eruca's own: it is skipped, which is logged, and written again
    from the state. If RocketMQ has used the store, the file may hold content that exists nowhere
    else.

    Args:
        directory: The store's directory.
        known: The present groups: settings that RocketMQ's format lacks are kept from them.
        was_rocketmqs: Whether RocketMQ has used the store since Eruca did.

    Raises:
        UnreadableConfigError: A file is damaged, and RocketMQ has used the store.
    """
    loaded = Loaded([], [], [])
    parsers: Mapping[str, Callable[[Mapping[str, Any]], Loaded]] = {
        _TOPICS: lambda content: loaded._replace(topics=_topics(content)),
        _GROUPS: lambda content: loaded._replace(groups=_groups(content, known)),
        _OFFSETS: lambda content: loaded._replace(offsets=_offsets(content)),
    }
    read = read_object_or_backup if was_rocketmqs else read_object
    for name, parse in parsers.items():
        try:
            content = read(directory / DIRECTORY / name)
            if content and not content.items() >= MARK.items():
                loaded = parse(content)
        except UnreadableConfigError as error:
            if was_rocketmqs:
                raise
            logger.warning("a config file is damaged and is rebuilt from the log", fault=str(error))
    return loaded


def has_rocketmqs(directory: Path) -> bool:
    """Tell whether RocketMQ was the last to write one of the files in ``config/``, readably."""
    for name in (_TOPICS, _OFFSETS, _GROUPS, DELAY_OFFSETS):
        with suppress(UnreadableConfigError):
            content = read_object(directory / DIRECTORY / name)
            if content and not content.items() >= MARK.items():
                return True
    return False


def _topics(content: Mapping[str, Any]) -> list[TopicPut]:
    with _understanding(_TOPICS):
        return [
            TopicPut(
                topic=_sound_topic(name),
                read_queue_count=_count(fields["readQueueNums"]),
                write_queue_count=_count(fields["writeQueueNums"]),
                permission=_PERMISSIONS[int(fields["perm"]) & 6],
                ordered=bool(fields.get("order", False)),
            )
            for name, fields in content.get("topicConfigTable", {}).items()
        ]


def _offsets(content: Mapping[str, Any]) -> list[OffsetsCommitted]:
    by_group: dict[str, list[CommittedOffset]] = {}
    with _understanding(_OFFSETS):
        for place, queues in content.get("offsetTable", {}).items():
            topic, _, group = place.rpartition("@")
            place.encode()  # raise on an unpaired surrogate, which no record can hold
            by_group.setdefault(group, []).extend(
                CommittedOffset(topic, _count(queue_id), _offset(offset))
                for queue_id, offset in queues.items()
            )
    return [OffsetsCommitted(group, commits) for group, commits in by_group.items()]


def _groups(content: Mapping[str, Any], known: Mapping[str, Group]) -> list[GroupPut]:
    with _understanding(_GROUPS):
        return list(group_puts(content, known))


@contextmanager
def _understanding(name: str) -> Iterator[None]:
    """Raise UnreadableConfigError for any error that shows an unexpected file content."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UnreadableConfigError(
            f"{DIRECTORY}/{name}: not as RocketMQ writes it: {error!r}"
        ) from error


def _sound_topic(name: str) -> str:
    if (fault := broker_topic_fault(name)) is not None:  # the name becomes a directory
        raise ValueError(f"the topic name {name!r} {fault.said}")
    return name


def _count(value: Any) -> int:  # noqa: ANN401 - it comes from JSON
    return _whole(value, _INT_MAX)


def _offset(value: Any) -> int:  # noqa: ANN401 - it comes from JSON
    return _whole(value, _LONG_MAX)


def _whole(value: Any, highest: int) -> int:  # noqa: ANN401 - it comes from JSON
    number = int(value)
    if not -highest <= number <= highest:
        raise ValueError(f"{number} is out of range")
    return number


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
    """Return the file whose table is *empty*, with all offsets inserted.

    They are encoded group by group: a single call would block all other threads meanwhile.
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
