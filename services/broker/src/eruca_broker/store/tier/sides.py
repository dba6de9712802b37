"""Side objects: the consume queues' entries of one segment, built from its records.

The segment is walked several times: first to verify each record and to count the messages of each
queue, then to put the entries where they belong, in a file. At last its keys are put behind them,
and sorted. So memory is needed for runs, not for messages, and while keys are sorted, for them.
Everything is a generator of small steps, which the caller runs in a thread with pauses.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from eruca_broker.core.consume_queue_entry import ENTRY_DTYPE, ENTRY_SIZE
from eruca_broker.core.log.recovery import walk
from eruca_broker.core.tier.queue_tables import (
    KEY_DTYPE,
    KEY_SIZE,
    TIME_DTYPE,
    TIME_SIZE,
    Key,
    Run,
    carried,
    encoded,
    fences_of,
    key_rows,
    placed,
)
from eruca_broker.store.projecting.dispatcher import indexed_keys, queue_runs

CHUNK_SIZE: Final = 4 * 1024 * 1024  # bytes that are fetched from the tier together
KEYS_MAX: Final = 1 << 24  # of a segment; one with more has none in its side object
_READ_SIZE: Final = 1024 * 1024


class DamagedSegmentError(OSError):
    """A record of a closed segment is damaged: its segment is not uploaded."""


class Side(NamedTuple):
    """The result for one segment."""

    head: bytes
    body_path: Path  # of the file with everything behind the head
    body_size: int
    records: int
    first_ms: int  # the least store time
    last_ms: int  # the greatest one
    sha256: str  # of the segment: see :func:`digest_of`


class _Survey:
    """The findings of the first walk."""

    def __init__(self) -> None:
        self.runs: dict[Key, list[Run]] = {}
        self.records = 0
        self.key_count = 0
        self.first_ms = 0
        self.last_ms = 0


def side_of(
    path: Path,
    base_offset: int,
    body_path: Path,
    *,
    before: Mapping[Key, Run],
    is_current: Callable[[Key, Run], bool],
    chunk_size: int,
    done: Callable[[Side], None],
    has_keys: bool = True,
) -> Iterator[None]:
    """Build the side object of a closed segment in steps; give it to *done* at the end.

    Args:
        path: The segment's file.
        base_offset: Log offset of its first byte.
        body_path: The file to write.
        before: The last run of each queue in the segment before.
        is_current: Tells whether a queue is still that of an existing topic.
        chunk_size: Bytes of a chunk.
        done: Called once, by the last step.
        has_keys: Put the messages' keys into it, if there are not too many; format 1 had none.

    Raises:
        DamagedSegmentError: A record is damaged.
        OSError: The disk refuses.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as segment:
        size = len(segment)
        survey = _Survey()
        yield from _surveyed(segment, base_offset, survey)
        runs = placed(carried(before, survey.runs, is_current))
        count = sum(run.messages for of_one in runs.values() for run in of_one)
        key_count = survey.key_count if has_keys and survey.key_count <= KEYS_MAX else None
        fences: list[bytes] = []
        body_size = count * (ENTRY_SIZE + TIME_SIZE) + (key_count or 0) * KEY_SIZE
        body_path.parent.mkdir(exist_ok=True)
        with body_path.open("wb+") as body:
            if body_size:
                # With its blocks: a full disk is an error here, and SIGBUS in the mapping.
                os.posix_fallocate(body.fileno(), 0, body_size)
                yield  # a step of its own
                with mmap.mmap(body.fileno(), body_size) as room:
                    yield from _filled(segment, base_offset, runs, count, room)
                    if key_count:
                        yield from _keyed(segment, base_offset, key_count, room, fences)
    segment_digests: list[bytes] = []
    yield from digests_of(path, chunk_size, segment_digests)
    side_digests: list[bytes] = []
    yield from digests_of(body_path, chunk_size, side_digests)
    head = encoded(
        runs,
        base=base_offset,
        size=size,
        chunk_size=chunk_size,
        segment_digests=b"".join(segment_digests),
        side_digests=b"".join(side_digests),
        key_count=key_count,
        key_fences=b"".join(fences),
    )
    done(
        Side(
            head,
            body_path,
            body_size,
            survey.records,
            survey.first_ms,
            survey.last_ms,
            digest_of(segment_digests),
        )
    )


def digests_of(path: Path, chunk_size: int, found: list[bytes]) -> Iterator[None]:
    """Add the SHA-256 of each chunk of a file to *found*, in steps.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        while True:
            hashed, size = hashlib.sha256(), 0
            while size < chunk_size and (data := file.read(min(_READ_SIZE, chunk_size - size))):
                hashed.update(data)
                size += len(data)
            if not size:
                return
            found.append(hashed.digest())
            yield


def proved(path: Path, base_offset: int) -> Iterator[None]:
    """Verify each record of a closed segment, in steps.

    Args:
        path: The segment's file.
        base_offset: Log offset of its first byte.

    Raises:
        DamagedSegmentError: A record is damaged.
        OSError: The file cannot be read.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as segment:
        yield from _surveyed(segment, base_offset, _Survey())


def digest_of(chunks: list[bytes]) -> str:
    """Return a segment's digest: the SHA-256 of its chunks' SHA-256s, in hex."""
    return hashlib.sha256(b"".join(chunks)).hexdigest()


def _surveyed(segment: mmap.mmap, base_offset: int, survey: _Survey) -> Iterator[None]:
    end, is_full = 0, False
    for step in walk(segment, 0, base_offset):
        if step.columns is not None:
            # In a log that RocketMQ wrote, times may decrease.
            times = step.columns.store_timestamps
            first_ms, last_ms = int(times.min()), int(times.max())
            survey.first_ms = min(survey.first_ms, first_ms) if survey.records else first_ms
            survey.last_ms = max(survey.last_ms, last_ms)
            survey.records += len(step.columns.starts)
            survey.key_count += len(indexed_keys(step.columns, step.topics))
            for run in queue_runs(step.columns, step.topics, base_offset):
                _extend(survey.runs.setdefault(run.key, []), run.first, run.entries)
        end, is_full = step.end, step.is_full
        if step.fault is not None:
            raise DamagedSegmentError(
                f"the record at log offset {base_offset + end} is damaged: {step.fault}"
            )
        yield
    if not is_full and end != len(segment):
        raise DamagedSegmentError(f"no record is at log offset {base_offset + end}")


def _extend(runs: list[Run], first: int, entries: np.ndarray) -> None:
    if runs and runs[-1].end == first:
        runs[-1] = runs[-1]._replace(messages=runs[-1].messages + len(entries))
    else:
        runs.append(Run(first, len(entries), int(entries["log_offset"][0]), 0))


def _filled(
    segment: mmap.mmap,
    base_offset: int,
    runs: Mapping[Key, list[Run]],
    count: int,
    room: mmap.mmap,
) -> Iterator[None]:
    """Put entries and times of the segment's messages into *room*."""
    places = {queue: of_one[0].place for queue, of_one in runs.items()}
    entries = np.frombuffer(room, ENTRY_DTYPE, count)
    times = np.frombuffer(room, TIME_DTYPE, count, count * ENTRY_SIZE)
    try:
        for step in walk(segment, 0, base_offset):
            if step.columns is not None:
                for run in queue_runs(step.columns, step.topics, base_offset):
                    first = places[run.key]
                    last = places[run.key] = first + len(run.entries)
                    entries[first:last] = run.entries
                    times[first:last] = step.columns.store_timestamps[run.rows]
            yield
    finally:
        del entries, times  # else the mapping could not be closed


def _keyed(
    segment: mmap.mmap, base_offset: int, key_count: int, room: mmap.mmap, fences: list[bytes]
) -> Iterator[None]:
    """Put the keys of the segment's messages at the end of *room*; add their fences."""
    rows = np.frombuffer(room, KEY_DTYPE, key_count, len(room) - key_count * KEY_SIZE)
    try:
        end = 0
        for step in walk(segment, 0, base_offset):
            if step.columns is not None:
                keys = indexed_keys(step.columns, step.topics)
                first, end = end, end + len(keys)
                places = step.columns.starts[keys["record"]]
                rows[first:end] = key_rows(keys["hash"].astype(np.int32), places)
            yield
        assert end == key_count, "both walks see the same records"
        rows.sort()
        fences.append(fences_of(rows))
    finally:
        del rows  # else the mapping could not be closed


def remove(path: Path) -> None:
    """Delete a file, if it is there."""
    with suppress(FileNotFoundError):
        path.unlink()
