"""The answers that a broker must give, computed from its log in the plainest way.

:func:`read_log` reads the files with the codec alone, and :class:`LogModel` folds the records.
Neither shares code with the broker's store, so they cannot share its mistakes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.properties import KEYS, UNIQ_KEY, split_keys
from eruca.contract.records import BLANK_SIZE_MIN, MAGIC_BLANK, Record, decode_record

Key = tuple[str, int]
"""A queue: its topic and its number."""


def read_log(directory: Path, from_offset: int = 0, *, is_killed: bool = False) -> Iterator[Record]:
    """Yield the records from *from_offset* on; the log must be whole, with nothing behind its end.

    Args:
        directory: The store's.
        from_offset: Where a record begins, or the log ends.
        is_killed: Whether the broker was killed and not started since. Then a write may lack its
            first bytes, which are written last; what it has left belongs to no log.
    """
    has_ended = False
    for path in sorted((directory / "commitlog").iterdir()):
        base, data = int(path.name), path.read_bytes()
        position = max(from_offset - base, 0)
        while not has_ended and position + BLANK_SIZE_MIN <= len(data):
            size, magic = struct.unpack_from(">iI", data, position)
            if magic == MAGIC_BLANK:
                assert size == len(data) - position, f"blank record at {base + position}"
                break
            has_ended = size == magic == 0
            if not has_ended:
                record = decode_record(data, position)
                assert record.log_offset == base + position
                yield record
                position += size
        if has_ended and not is_killed:
            assert not data[position:].strip(b"\0"), f"{path} holds something behind its end"


class LogModel:
    """A fold over all records there ever were in a log; ``expire`` forgets the oldest."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.topics: dict[str, tuple[int, int]] = {}  # read and write queues
        self.queues: dict[Key, list[Record]] = {}
        self.ends: dict[Key, int] = {}
        self.committed: dict[str, dict[Key, int]] = {}
        self.end_offset = 0  # behind the last record
        self._parts: list[dict[str, Any]] = []
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Fold the next record; queue offsets have no gap, and store times never go backwards."""
        key = record.topic, record.queue_id
        queue = self.queues.setdefault(key, [])
        assert record.queue_offset == self.ends.get(key, 0), record
        assert not queue or queue[-1].store_timestamp <= record.store_timestamp
        queue.append(record)
        self.ends[key] = record.queue_offset + 1
        self.end_offset = record.log_offset + record.size
        if record.topic == EVENTS_TOPIC:
            self._fold(json.loads(record.body))

    def range(self, key: Key) -> tuple[int, int]:
        """Return a queue's first offset that is still there and its next one."""
        end = self.ends.get(key, 0)
        return end - len(self.queues.get(key, [])), end

    def by_key(self, topic: str, text: str) -> list[Record]:
        """Return a topic's messages with a key or unique id, newest first."""
        found = [
            record
            for key, queue in self.queues.items()
            for record in queue
            if key[0] == topic and text in keys_of(record)
        ]
        return sorted(found, key=lambda record: -record.log_offset)

    def expire(self, min_offset: int) -> None:
        """Forget the records below *min_offset*, as retention does."""
        for queue in self.queues.values():
            queue[:] = [record for record in queue if record.log_offset >= min_offset]

    def _fold(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "topic_put":
                if event["topic"] not in self.topics:
                    # What was committed while the last one of its name was being deleted.
                    self._forget(event["topic"], *self.committed.values())
                counts = event["read_queue_count"], event["write_queue_count"]
                self.topics[event["topic"]] = counts
            case "topic_deleted":
                self.topics.pop(event["topic"], None)
                tables: list[dict[Key, Any]] = [self.queues, self.ends, *self.committed.values()]
                self._forget(event["topic"], *tables)
            case "offsets_committed":
                positions = self.committed.setdefault(event["group"], {})
                positions |= {(topic, queue): offset for topic, queue, offset in event["offsets"]}
            case "snapshot":
                self._parts = [*self._parts, event] if event["part"] > 1 else [event]
                if event["part"] == event["parts"]:
                    self._compare(self._parts)

    def _forget(self, topic: str, *tables: dict[Key, Any]) -> None:
        for table in tables:
            for key in [key for key in table if key[0] == topic]:
                del table[key]

    def _compare(self, parts: list[dict[str, Any]]) -> None:
        """Check that a snapshot says what the records before it said."""
        topics = {item["topic"]: item for part in parts for item in part.get("topics", [])}
        assert topics.keys() - {EVENTS_TOPIC} == self.topics.keys()
        ends = {(item[0], item[1]): item[2] for part in parts for item in part["queue_ends"]}
        ends.pop((EVENTS_TOPIC, 0), None)
        assert ends == {key: end for key, end in self.ends.items() if key[0] != EVENTS_TOPIC}
        committed: dict[str, dict[Key, int]] = {}
        for part in parts:
            for group, commits in part["groups"]:
                committed.setdefault(group, {}).update({(t, q): o for t, q, o in commits})
        # A group without a position is in the snapshot by its name.
        assert committed == {group: known for group, known in self.committed.items() if known}


def keys_of(record: Record) -> list[str]:
    """Return what a record can be found by."""
    properties = record.property_map()
    unique = properties.get(UNIQ_KEY)
    return [*([unique] if unique else []), *split_keys(properties.get(KEYS))]
