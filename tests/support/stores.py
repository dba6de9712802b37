"""Stores for tests: small in every respect, closed in order or left as a crash leaves them."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import structlog

from eruca.contract.hashing import tags_code
from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from eruca.contract.records import Host, Record, encode_unstamped
from eruca_broker.core.batches.batch import Batch, batch_of_records
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.store.log.receipts import Receipt
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode, StoreSettings

STORE_HOST = Host.parse("127.0.0.1", 10_911)


def small_settings(
    *,
    flush_mode: FlushMode = FlushMode.ASYNC,
    segment_bytes: int = 24 * 1024,
    file_entries: int = 16,
) -> StoreSettings:
    """Return settings with which a few dozen messages fill several files of each kind."""
    return StoreSettings(
        store_host=STORE_HOST,
        flush_mode=flush_mode,
        segment_bytes=segment_bytes,
        queue_file_entries=file_entries,
        index_slots=16,
        index_entries=4 * file_entries,
        open_files_max=8,
    )


def message(
    topic: str,
    queue_id: int,
    body: bytes,
    *,
    tag: str | None = None,
    keys: str | None = None,
    unique_key: str | None = None,
) -> bytes:
    """Return a record as a producer lays it out."""
    properties = {TAGS: tag, KEYS: keys, UNIQ_KEY: unique_key}
    stored = encode_properties({name: text for name, text in properties.items() if text})
    return encode_unstamped(Record(topic=topic, body=body, queue_id=queue_id, properties=stored))


def batch(topic: str, queue_id: int, bodies: Sequence[bytes], **properties: str | None) -> Batch:
    """Return a batch of messages that are alike but for their bodies."""
    records = [message(topic, queue_id, body, **properties) for body in bodies]
    return batch_of_records(topic, queue_id, records)


def new_term(store: MessageStore, event: EpochBegan) -> asyncio.Future[Receipt]:
    """Let the master of a store begin another term."""
    store.role.follow()
    return store.role.lead(event)


async def delete_oldest_segments(store: MessageStore, count: int) -> list[int]:
    """Delete up to *count* segments that nothing needs; return the log's start after each."""
    retention = store.retention
    steps = retention.deletion(count, await retention.needed_from())
    return [min_offset for min_offset in steps if min_offset is not None]


async def abandon(store: MessageStore) -> None:
    """Leave *store* as a killed process leaves it: what was under way stops where it is."""
    writer, log = store._writer, store._log
    store._index_follower.stop()
    writer._accepted.clear()
    writer._written.clear()
    if writer._flush is not None:
        writer._flush.cancel()
        await asyncio.wait([writer._flush])
    writer._flusher.shutdown()
    for segment in [*log.segments, *([log._next] if log._next else [])]:
        segment.close()
    store._consume_queues.close()
    store._index.close()
    store._lock.release()


@contextmanager
def without_log_lines() -> Iterator[None]:
    """Log nothing: what stores log by the hundred nobody reads, and a full disk has no room."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.reset_defaults()


def scratch_directory() -> Path:
    """Return a new directory where flushing costs nothing, if the machine has such a place."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="eruca-", dir=memory if memory.is_dir() else None))


def all_answers(store: MessageStore) -> dict[str, object]:
    """Return whatever can be asked of *store*, for comparing it with another time or store."""
    state = store.state
    answers: dict[str, object] = {
        "topics": {name: replace(topic) for name, topic in state.topics.items()},
        "committed": {group: dict(state.group_offsets(group)) for group in state.groups},
    }
    for topic in state.topics.values():
        if topic.is_system:
            continue
        for queue_id in range(topic.read_queue_count):
            answers[f"{topic.name}/{queue_id}"] = _queue_answers(store, topic.name, queue_id)
        for key in ("all", "k0", "k1", "k2"):
            found = store.log.by_key(topic.name, key, count_max=10_000, begin_ms=0, end_ms=2**62)
            answers[f"{topic.name}#{key}"] = [record.log_offset for record in found]
    return answers


def _queue_answers(store: MessageStore, topic: str, queue_id: int) -> list[object]:
    low, high = store.queues.range(topic, queue_id)
    answers: list[object] = [low, high]
    for tags in (None, frozenset({tags_code("red")}), frozenset({tags_code("red"), 7})):
        read = store.queues.read(
            topic, queue_id, low, count_max=10_000, bytes_max=1 << 30, tag_codes=tags
        )
        answers += [read.status, read.next_offset, read.sizes, b"".join(read.slices)]
    times = sorted(
        {store.places.stored_at_ms(topic, queue_id, offset) or 0 for offset in range(low, high)}
    )
    for time in times:
        for asked in (time - 1, time, time + 1):
            lower = store.places.offset_by_time(topic, queue_id, asked)
            answers += [lower, store.places.offset_by_time(topic, queue_id, asked, upper=True)]
    return answers
