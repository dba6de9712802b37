"""Stores as RocketMQ writes them: no control records, and its own words in ``config/``."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from eruca.contract.properties import encode_properties
from eruca.contract.records import Record, encode_record
from support.log_model import read_log
from support.stores import STORE_HOST

SEGMENT_SIZE = 64 * 1024


class Stored(NamedTuple):
    """A message in such a store."""

    topic: str
    queue_id: int = 0
    properties: Mapping[str, str] = {}
    body: bytes = b"body"


def write_log(directory: Path, messages: Sequence[Stored], now_ms: int) -> None:
    """Write a log, left by a kill."""
    (directory / "commitlog").mkdir(parents=True)
    (directory / "commitlog" / f"{0:020d}").write_bytes(bytes(SEGMENT_SIZE))
    write_on(directory, messages, now_ms)


def write_on(
    directory: Path, messages: Sequence[Stored], now_ms: int, *, deleted: Collection[str] = ()
) -> None:
    """Write behind what the log of one segment has, as a broker that is killed then.

    Topics that it has *deleted* before begin at offset 0.
    """
    ends = dict[tuple[str, int], int]()
    end = 0
    for record in read_log(directory):
        if record.topic not in deleted:
            ends[record.topic, record.queue_id] = record.queue_offset + 1
        end = record.log_offset + record.size
    data = b""
    for message in messages:
        key = message.topic, message.queue_id
        data += encode_record(
            Record(
                topic=message.topic,
                body=message.body,
                queue_id=message.queue_id,
                queue_offset=ends.setdefault(key, 0),
                log_offset=end + len(data),
                store_timestamp=now_ms,
                born_timestamp=now_ms,
                store_host=STORE_HOST,
                born_host=STORE_HOST,
                properties=encode_properties(dict(message.properties)),
            )
        )
        ends[key] += 1
    with (directory / "commitlog" / f"{0:020d}").open("r+b") as segment:
        segment.seek(end)
        segment.write(data)
    (directory / "abort").touch()


def write_config(directory: Path, name: str, content: Mapping[str, Any]) -> None:
    """Write one of the files in ``config/``."""
    (directory / "config").mkdir(exist_ok=True)
    (directory / "config" / name).write_text(json.dumps(content))
