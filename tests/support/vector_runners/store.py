"""Vectors of the store's projections: consume queue files, index files, offsets by time.

Each case gets a directory of its own, and what is compared is what lies in it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np

from eruca.contract.hashing import index_hash, key_hash, tags_code
from eruca_broker.core.consume_queue_entry import (
    ENTRY_SIZE,
    FILLER_SIZE,
    build_entries,
    decode_entry,
    encode_entry,
    view_entries,
)
from eruca_broker.core.index.layout import (
    HEADER_SIZE,
    SLOT_SIZE,
    entry_position,
    file_size,
)
from eruca_broker.store.files.open_files import OpenFiles
from eruca_broker.store.files.unflushed import Unflushed
from eruca_broker.store.index.index_file import IndexFile
from eruca_broker.store.index.key_index import KeyIndex
from eruca_broker.store.index.look_ups import select
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from support.rocketmq_rules import next_file_start

Case = dict[str, Any]


@contextmanager
def _queue(case: Case, files: dict[str, str] | None = None) -> Iterator[ConsumeQueue]:
    """Open the queue of a case: with its puts, or over given files."""
    open_files = OpenFiles(4)
    with tempfile.TemporaryDirectory(prefix="eruca-vector-") as root:
        directory = Path(root) / "TopicTest" / "0"
        for name, content in (files or {}).items():
            directory.mkdir(parents=True, exist_ok=True)
            size = case["entries_per_file"] * ENTRY_SIZE
            (directory / name).write_bytes(bytes.fromhex(content).ljust(size, b"\0"))
        queue = ConsumeQueue.open(
            str(directory),
            entries_per_file=case["entries_per_file"],
            open_files=open_files,
            unflushed=Unflushed(),
        )
        for log_offset, size, code, queue_offset in case.get("puts", ()):
            queue.put(queue_offset, log_offset, size, code)
        try:
            yield queue
        finally:
            open_files.close()


def run_entry(case: Case) -> None:
    fields = case["commit_log_offset"], case["size"], case["tags_code"]
    columns = (np.array([field], np.int64) for field in fields)

    assert encode_entry(*fields).hex() == case["expected_hex"]
    assert build_entries(*columns).tobytes().hex() == case["expected_hex"]
    assert decode_entry(bytes.fromhex(case["expected_hex"])) == fields
    if "tag" in case:
        assert tags_code(case["tag"] or "") == case["tags_code"]


def run_roll_next_file(case: Case) -> None:
    found = next_file_start(case["queue_offset"], case["entries_per_file"])

    assert found == case["expected_next_queue_offset"]


def run_puts(case: Case) -> None:
    with _queue(case) as queue:
        assert queue.min_offset == case["expected_min_offset"]
        assert queue.max_offset == case["expected_max_offset"]
        assert queue.max_physical_offset == case["expected_max_physical_offset"]
        assert queue.max_offset - queue.min_offset == case["expected_total"]
        _assert_files(queue, case["expected_files_hex"])
    _run_puts_at_once(case)


def _run_puts_at_once(case: Case) -> None:
    """Put the same entries as one run, without those put twice."""
    rows = np.array([list(row) for row, _ in groupby(case["puts"])], np.int64)
    with _queue({**case, "puts": []}) as queue:
        queue.put_run(int(rows[0, 3]), build_entries(rows[:, 0], rows[:, 1], rows[:, 2]))

        assert queue.max_offset == case["expected_max_offset"]
        _assert_files(queue, case["expected_files_hex"])


def _assert_files(queue: ConsumeQueue, expected: dict[str, str]) -> None:
    paths = sorted(Path(queue.files.directory).iterdir())
    assert [path.name for path in paths] == sorted(expected)
    for path in paths:
        content = path.read_bytes()
        written = bytes.fromhex(expected[path.name])
        assert content == written.ljust(queue.files.file_size, b"\0"), path.name


def run_recover(case: Case) -> None:
    with _queue(case, case["files_hex"]) as queue:
        assert queue.max_offset == case["expected_max_offset"]
        assert queue.max_physical_offset == case["expected_max_physical_offset"]
        entries = queue.entries(queue.min_offset, queue.max_offset)
        assert len(view_entries(entries.tobytes())) == queue.max_offset - queue.min_offset


def run_truncate(case: Case) -> None:
    with _queue(case) as queue:
        queue.truncate(case["truncate_at_commit_log_offset"])

        assert queue.max_offset == case["expected_max_offset"]
        is_only_padding = queue.min_offset == queue.max_offset > 0
        # RocketMQ takes the padding for a record at 0 and would put nothing below 2 GiB any more.
        found = FILLER_SIZE if is_only_padding else queue.max_physical_offset
        assert found == case["expected_max_physical_offset"]
        queue.recover()
        assert queue.max_offset == case["expected_max_offset"]


def run_correct_min(case: Case) -> None:
    with _queue(case) as queue:
        before = queue.min_offset
        queue.correct_min(case["min_commit_log_offset"])

        assert queue.max_offset == case["expected_max_offset"]
        if queue.min_offset // case["entries_per_file"] == queue.files.first or (
            queue.min_offset == queue.max_offset
        ):
            assert queue.min_offset == case["expected_min_offset"]
        else:
            # RocketMQ looks into the first file only: it counts on files that are wholly past
            # having been deleted before. We find the entry wherever it is.
            assert case["expected_min_offset"] in (before, queue.min_offset)


def run_lookup(case: Case) -> None:
    first, times = case["first_queue_offset"], case["store_timestamps"]
    puts = [[1000 + 100 * row, 100, 0, first + row] for row in range(len(times))]
    live = first + case["expired_entries"]
    with _queue({**case, "puts": puts}) as queue:
        queue.correct_min(1000 + 100 * case["expired_entries"])

        assert (queue.min_offset, queue.max_offset) == (live, case["max_offset"])
        for timestamp, *executed in case["probes"]:
            found = [
                queue.offset_by_time(
                    timestamp, lambda log_offset: times[(log_offset - 1000) // 100], upper=is_upper
                )
                for is_upper in (False, True)
            ]
            if timestamp in case.get("quirk_probes", ()):
                # RocketMQ strays from its own rule among padding and expired entries.
                rows = range(case["expired_entries"], len(times))
                natural = [
                    next((first + n for n in rows if times[n] >= timestamp), queue.max_offset),
                    next((first + n for n in reversed(rows) if times[n] <= timestamp), 0),
                ]
                assert found == natural, timestamp
            else:
                assert found == executed, timestamp


def run_index_file(case: Case) -> None:
    """Put the keys one by one, then in one go by columns: the file is the same."""
    for is_at_once in (False, True):
        with tempfile.TemporaryDirectory(prefix="eruca-vector-") as root:
            open_files = OpenFiles(2)
            file = IndexFile.create(
                f"{root}/20231114221320000",
                hash_slots=case["hash_slots"],
                max_entries=case["max_entries"],
                end_offset=case["initial_end_offset"],
                end_timestamp=case["initial_end_timestamp"],
                files=open_files,
            )
            accepted = [put for put in case["puts"] if put[3]]
            if is_at_once:
                _add(file, accepted)
            else:
                for key, offset, timestamp, is_accepted in case["puts"]:
                    assert (file.room > 0) == is_accepted
                    if is_accepted:
                        _add(file, [[key, offset, timestamp]])
            _assert_queries(file, case)
            file.save_slots()
            file.flush(file.header)
            _assert_index_bytes(Path(file.path), case)

            loaded = IndexFile.load(
                file.path,
                hash_slots=case["hash_slots"],
                max_entries=case["max_entries"],
                files=open_files,
            )
            _assert_queries(loaded, case)  # with slots read from the file
            if "reload_query" in case:
                query = case["reload_query"]
                found = select(loaded, index_hash(query["key"]), 64, 0, (1 << 63) - 1)
                assert found == query["expected_offsets"]
            loaded.load_slots()
            assert np.array_equal(loaded.slots, file.slots)  # type: ignore[arg-type]
            open_files.close()


def _add(file: IndexFile, puts: list[list[Any]]) -> None:
    hashes = np.array([index_hash(put[0]) for put in puts], np.int32)
    offsets = np.array([put[1] for put in puts], np.int64)
    timestamps = np.array([put[2] for put in puts], np.int64)
    file.add(hashes, offsets, timestamps)


def _assert_queries(file: IndexFile, case: Case) -> None:
    header = file.header
    assert header.begin_timestamp == case["expected_begin_timestamp"]
    assert header.end_timestamp == case["expected_end_timestamp"]
    assert header.end_offset == case["expected_end_offset"]
    assert (file.room == 0) == case["expected_full"]
    for query in case["queries"]:
        begin, end = query["begin"], query["end"]
        found = select(file, index_hash(query["key"]), query["max"], begin, end)
        assert found == query["expected_offsets"], query
        assert header.overlaps(begin, end) == query["expected_time_matched"], query


def _assert_index_bytes(path: Path, case: Case) -> None:
    content = path.read_bytes()
    slots_end = HEADER_SIZE + SLOT_SIZE * case["hash_slots"]
    entries = bytes.fromhex(case["expected_entries_hex"])
    assert entry_position(case["hash_slots"], 0) == slots_end
    assert len(content) == case["expected_file_size"]
    assert len(content) == file_size(case["hash_slots"], case["max_entries"])
    assert content[:HEADER_SIZE].hex() == case["expected_header_hex"]
    assert content[HEADER_SIZE:slots_end].hex() == case["expected_slots_hex"]
    assert content[slots_end:] == entries.ljust(len(content) - slots_end, b"\0")


def run_index_service(case: Case) -> None:
    with tempfile.TemporaryDirectory(prefix="eruca-vector-") as root:
        index = KeyIndex.open(
            Path(root),
            hash_slots=case["hash_slots"],
            max_entries=case["max_entries"],
            zone=ZoneInfo(case["timezone"]),
        )
        for message in case["messages"]:
            _dispatch(index, message)

        assert sorted(path.name for path in Path(root).iterdir()) == case["expected_file_names"]
        for query in case["queries"]:
            found = index.query(
                key_hash(query["topic"], query["key"]),
                min(query["max"], case["max_batch"]),
                query["begin"],
                query["end"],
            )
            assert found == query["expected_offsets"], query
            assert index.end_timestamp == query["expected_last_update_timestamp"]
            assert index.end_offset == query["expected_last_update_offset"]
        index.close()


def _dispatch(index: KeyIndex, message: Case) -> None:
    """Index a message as RocketMQ does, which makes room before it looks at the message."""
    index.make_room(message["store_timestamp"])
    if message["transaction_type"] == "rollback":
        return
    unique = [message["unique_key"]] if message["unique_key"] is not None else []
    keys = unique + [key for key in (message["keys"] or "").split(" ") if key]
    hashes = np.array([key_hash(message["topic"], key) for key in keys], np.int32)
    index.put_many(
        hashes,
        np.full(len(keys), message["commit_log_offset"], np.int64),
        np.full(len(keys), message["store_timestamp"], np.int64),
    )


RUNNERS: Final[dict[str, Callable[[Case], None]]] = {
    "consume_queue_entry/entry": run_entry,
    "consume_queue_entry/roll_next_file": run_roll_next_file,
    "consume_queue_entry/puts": run_puts,
    "consume_queue_entry/recover": run_recover,
    "consume_queue_entry/truncate": run_truncate,
    "consume_queue_entry/correct_min": run_correct_min,
    "offset_by_timestamp/lookup": run_lookup,
    "index_file/index_file": run_index_file,
    "index_file/index_service": run_index_service,
}
