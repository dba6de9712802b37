"""Vectors of whole stores: messages appended one after another, then every file is compared.

The log is written below the store's writer, because that begins each segment with a snapshot of
the broker's state, which RocketMQ has not. Everything else is what the broker does: records are
stamped in their batch and dispatched as they come; a second set of projections is then built from
the log alone, as recovery builds it.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from eruca.contract.message_ids import encode_offset_id
from eruca.contract.names import SCHEDULE_TOPIC
from eruca.contract.records import (
    NO_HOST,
    Host,
    Record,
    SysFlag,
    encode_record,
    encode_unstamped,
)
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.consume_queue_entry import ENTRY_SIZE
from eruca_broker.core.log.recovery import walk
from eruca_broker.store.index.key_index import TIMESTAMP_MAX, KeyIndex
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.projecting.dispatcher import Dispatcher
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.reading.log_reader import LogReader
from support.vector_runners.message_formats import record_of

Case = dict[str, Any]
_TRANSACTION: Final = int(SysFlag.ROLLBACK)  # as a mask


class _Projections(NamedTuple):
    queues: ConsumeQueues
    key_index: KeyIndex
    dispatcher: Dispatcher
    reader: LogReader


@contextmanager
def _projections(directory: Path, log: CommitLog) -> Iterator[_Projections]:
    queues = ConsumeQueues(directory / "consumequeue", entries_per_file=8)
    index = KeyIndex.open(directory / "index", hash_slots=16, max_entries=8)
    yield _Projections(queues, index, Dispatcher(log, queues, index), LogReader(log, index))
    queues.close()
    index.close()


def run_append(case: Case) -> None:
    with tempfile.TemporaryDirectory(prefix="eruca-vector-") as root:
        log = CommitLog.open(Path(root) / "commitlog", case["commit_log_file_size"])
        with _projections(Path(root) / "live", log) as live:
            next_offsets: Counter[tuple[str, int]] = Counter()
            for message in case["messages"]:
                _append(log, live.dispatcher, message, next_offsets, case["property_crc_enabled"])
            assert log.end_offset == case["expected_commit_log_end"]
            _assert_log(Path(root) / "commitlog", case)
            if all(map(_is_dispatched_live, case["messages"])):
                live.dispatcher.catch_up_index()
                _assert_projections(live, case)
        with _projections(Path(root) / "rebuilt", log) as rebuilt:
            for segment in log.segments:
                for step in walk(segment.buffer, 0, segment.base_offset):
                    assert step.fault is None
                    if step.columns is not None:
                        rebuilt.dispatcher.rebuild(step.columns, step.topics, segment.base_offset)
            _assert_projections(rebuilt, case)
        log.close()


def _is_dispatched_live(message: Case) -> bool:
    """Tell whether our broker would append a message of this kind as it stands.

    It writes transactions otherwise than RocketMQ, a half message as one without a type, and keeps
    delayed messages elsewhere than in the schedule topic.
    """
    return not message["sys_flag"] & _TRANSACTION and message["topic"] != SCHEDULE_TOPIC


def _append(
    log: CommitLog,
    dispatcher: Dispatcher,
    message: Case,
    next_offsets: Counter[tuple[str, int]],
    with_checksum: bool,
) -> None:
    key = (message["topic"], message["queue_id"])
    record = record_of(message)
    is_queued = record.sys_flag & _TRANSACTION in (0, SysFlag.COMMIT)
    queue_offset = next_offsets[key] if is_queued else 0
    size = len(encode_record(record, with_checksum=with_checksum))
    if not log.fits(size):
        log.roll()
    stamped = replace(record, queue_offset=queue_offset, log_offset=log.end_offset)
    encoded = encode_record(stamped, with_checksum=with_checksum)

    assert message["expected_status"] == "PUT_OK"
    assert log.end_offset == message["expected_commit_log_offset"]
    assert queue_offset == message["expected_queue_offset"]
    assert len(encoded) == message["expected_size"]
    offset_id = encode_offset_id(stamped.store_host, stamped.log_offset)
    assert offset_id == message["expected_offset_message_id"]

    batch = batch_of_records(*key, [_unstamped(stamped, with_checksum=with_checksum)])
    entries = batch.stamp(
        queue_offset=queue_offset,
        log_offset=log.end_offset,
        store_timestamp=record.store_timestamp,
        store_host=record.store_host,
        born_host=record.born_host,
    )
    assert batch.records == encoded
    log.add(batch.records)
    log.write()
    next_offsets[key] += is_queued
    if _is_dispatched_live(message):
        place = Appended(batch, queue_offset, stamped.log_offset, record.store_timestamp, entries)
        dispatcher.dispatch([place], log.end_offset)


def _unstamped(record: Record, *, with_checksum: bool) -> bytes:
    """Return the record as a client lays it out: with the hosts' room, and nothing in it."""
    no_host = Host(bytes(16), 0)
    empty = replace(
        record,
        queue_offset=0,
        log_offset=0,
        store_timestamp=0,
        born_host=no_host if record.born_host.is_v6 else NO_HOST,
        store_host=no_host if record.store_host.is_v6 else NO_HOST,
    )
    return encode_unstamped(empty) if with_checksum else encode_record(empty)


def _assert_log(directory: Path, case: Case) -> None:
    paths = sorted(directory.iterdir())
    expected = case["expected_commit_log_files_hex"]
    assert [path.name for path in paths] == sorted(expected)
    for path in paths:
        content = path.read_bytes()
        written = bytes.fromhex(expected[path.name])
        assert len(content) == case["commit_log_file_size"]
        assert content == written.ljust(len(content), b"\0"), path.name


def _assert_projections(projections: _Projections, case: Case) -> None:
    found = {}
    for topic, queue_id in projections.queues:
        queue = projections.queues.queue(topic, queue_id)
        entries = queue.entries(queue.min_offset, queue.max_offset).tobytes()
        assert len(entries) == queue.max_offset * ENTRY_SIZE
        found[f"{topic}/{queue_id}"] = entries.hex()
    assert found == case["expected_consume_queues_hex"]
    for topic, key, expected in case["queries"]:
        records = projections.reader.by_key(
            topic, key, count_max=64, begin_ms=0, end_ms=TIMESTAMP_MAX, since_offset=0
        )
        assert sorted(record.log_offset for record in records) == sorted(expected), (topic, key)


RUNNERS: Final[dict[str, Callable[[Case], None]]] = {"commitlog_record/append": run_append}
