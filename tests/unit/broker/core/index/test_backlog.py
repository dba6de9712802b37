"""The keys that wait for the index: whatever they wait with, they come out as each would alone."""

from __future__ import annotations

from eruca.contract.hashing import key_hash
from eruca.contract.records import Record, encode_record
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.index.backlog import KeyBacklog

SIZE = 100  # bytes of a record, its properties left out


def add(backlog: KeyBacklog, topic: str, timestamp: int, first: int, *texts: str) -> None:
    """Add a batch of records that begin every hundred bytes."""
    records = []
    for text in texts:
        body = b"x" * (SIZE - len(encode_record(Record(topic=topic, body=b"", properties=text))))
        records.append(encode_record(Record(topic=topic, body=body, properties=text)))
    batch = batch_of_records(topic, 0, records)
    backlog.add(batch.count, batch.found.keys, first, timestamp)


def filled() -> KeyBacklog:
    backlog = KeyBacklog()
    add(backlog, "t", 1, 100, "KEYS\x01a b\x02")
    add(backlog, "u", 2, 200, "TAGS\x01a\x02", "UNIQ_KEY\x01\x02")
    add(backlog, "t", 3, 1000, "KEYS\x01k1\x02", "TAGS\x01b\x02", "KEYS\x01\u952e\x02")
    return backlog


def test_every_key_has_its_entry_in_the_logs_order() -> None:
    hashes, offsets, timestamps = filled().entries()

    assert list(zip(hashes.tolist(), offsets.tolist(), timestamps.tolist(), strict=True)) == [
        (key_hash("t", "a"), 100, 1),
        (key_hash("t", "b"), 100, 1),
        (key_hash("t", "k1"), 1000, 3),
        (key_hash("t", "\u952e"), 1200, 3),
    ]


def test_what_waits_is_counted_and_found_newest_first() -> None:
    backlog = filled()

    assert list(backlog.newest_first()) == [1200, 1000, 100]
    assert (backlog.count, backlog.size) == (6, 4 * 8)


def test_what_is_indexed_is_forgotten() -> None:
    backlog = filled()

    backlog.clear()

    assert (backlog.count, backlog.size, list(backlog.newest_first())) == (0, 0, [])


def test_messages_without_keys_have_no_entries() -> None:
    backlog = KeyBacklog()
    add(backlog, "t", 1, 0, "TAGS\x01a\x02", "")

    assert [len(column) for column in backlog.entries()] == [0, 0, 0]
