"""Checks of a closed store's files: log, consume queues and key index agree, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from interop.checks import Checks
from interop.messages import Message, by_place
from interop.rocketmq import SIZES
from interop.store_files import (
    TIMED_TOPICS,
    KeyIndex,
    Log,
    QueueEntry,
    expected_keys,
    expected_queues,
    read_log,
    read_queues,
)


def check_files(
    checks: Checks, store: Path, messages: Sequence[Message], *, stopped_cleanly: bool = True
) -> None:
    """Check a store's files against each other and against the *messages* it must hold.

    After a kill, consume queues and index may lack entries that recovery will add. Their existing
    entries must be right all the same.
    """
    log = read_log(store)
    checks.record(
        "log: each record encodes to its own bytes, at its own offset",
        agrees=True,
        detail=f"{len(log.records)} records, {log.segments} segments, {log.blanks} blanks",
    )
    checks.record("log: it spans several segments", agrees=log.blanks > 0)
    topics = {message.topic for message in messages}
    checks.same_entries(
        "log: the contract's codec reads every message",
        by_place(message for topic in topics for message in log.messages(topic)),
        by_place(messages),
    )
    _check_queues(checks, store, log, complete=stopped_cleanly)
    _check_index(checks, store, log, complete=stopped_cleanly)


def _check_queues(checks: Checks, store: Path, log: Log, *, complete: bool) -> None:
    expected = _flat(expected_queues(log))
    found = {
        place: entry
        for place, entry in _flat(read_queues(store)).items()
        if place[0] not in TIMED_TOPICS
    }
    if not complete:
        # Recovery has not yet added its entries. And where RocketMQ has truncated its log, it
        # leaves entries behind a queue's end until it writes there.
        ends = {queue: max(entries) for queue, entries in expected_queues(log).items()}
        expected = {place: expected[place] for place in expected if place in found}
        found = {place: found[place] for place in found if place[2] <= ends.get(place[:2], -1)}
    checks.same_entries("consume queues: entries as the log demands", found, expected)


def _flat(
    queues: dict[tuple[str, int], dict[int, QueueEntry]],
) -> dict[tuple[str, int, int], QueueEntry]:
    return {
        (topic, queue_id, offset): entry
        for (topic, queue_id), entries in queues.items()
        for offset, entry in entries.items()
    }


def _check_index(checks: Checks, store: Path, log: Log, *, complete: bool) -> None:
    index = KeyIndex(store, SIZES.index_slots)
    expected = expected_keys(log)
    lost = {
        f"{topic}#{key}"
        for (topic, key), offsets in expected.items()
        if not offsets <= index.find(topic, key)
    }
    checks.record(
        f"key index: each of {len(expected)} keys leads to its messages",
        agrees=not lost or not complete,
        detail=f"{len(index)} files" + (f", {len(lost)} keys lost: {min(lost)}" if lost else ""),
    )
