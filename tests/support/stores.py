"""Stores for tests: small in every respect, closed in order or left as a crash leaves them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from eruca.contract.records import Host, Record, encode_record
from eruca_broker.core.batch import Batch, batch_of_records
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode, StoreSettings

STORE_HOST = Host.parse("127.0.0.1", 10_911)


def small_settings(
    *, flush_mode: FlushMode = FlushMode.ASYNC, segment_size: int = 24 * 1024
) -> StoreSettings:
    """Return settings with which a few dozen messages fill several files of each kind."""
    return StoreSettings(
        store_host=STORE_HOST,
        flush_mode=flush_mode,
        segment_size=segment_size,
        queue_file_entries=16,
        index_slots=16,
        index_entries=64,
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
    return encode_record(Record(topic=topic, body=body, queue_id=queue_id, properties=stored))


def batch(topic: str, queue_id: int, bodies: Sequence[bytes], **properties: str | None) -> Batch:
    """Return a batch of messages that are alike but for their bodies."""
    records = [message(topic, queue_id, body, **properties) for body in bodies]
    return batch_of_records(topic, queue_id, records)


async def abandon(store: MessageStore) -> None:
    """Leave *store* as a killed process leaves it: what was under way stops where it is."""
    writer, log = store._writer, store._log
    store._stop_index_timer()
    writer._accepted.clear()
    writer._written.clear()
    if writer._flush is not None:
        writer._flush.cancel()
        await asyncio.wait([writer._flush])
    writer._flusher.shutdown()
    for segment in [*log.segments, *([log._next] if log._next else [])]:
        segment.close()
    store._queues.close()
    store._index.close()
    store._lock.release()


def scratch_directory() -> Path:
    """Return a new directory where flushing costs nothing, if the machine has such a place."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="eruca-", dir=memory if memory.is_dir() else None))
