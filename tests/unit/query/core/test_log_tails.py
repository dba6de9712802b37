"""Tails of logs: what a broker sends need not be a stretch of a log."""

from __future__ import annotations

import tracemalloc

import pytest

from eruca.contract.records import encode_record
from eruca.core.messages.log_block import LogBlock
from eruca_query.core.log_tails import LogTail
from support.records import example_record

SOUND = encode_record(example_record(topic="flights"))
BODY_SIZE = 256 * 1024  # bytes


def tail_of(data: bytes) -> LogTail:
    return LogTail(LogBlock("broker-a", from_offset=0, next_offset=9, end_offset=9, data=data))


def test_what_is_sound_is_found() -> None:
    tail = tail_of(SOUND)

    assert [message.topic for message in tail.messages(containing=b"k1")] == ["flights"]
    assert tail.damage is None


def test_what_occurs_everywhere_is_looked_for_once_in_each_record() -> None:
    records = [
        encode_record(example_record(topic="flights", body=letter * BODY_SIZE))
        for letter in (b"y", b"z", b"z", b"y", b"z")
    ]
    tail = tail_of(b"".join(records))
    assert len(list(tail.messages())) == len(records)
    found = list(tail.messages(containing=b"z"))

    assert [message.log_offset for message in found] == [
        message.log_offset for message in tail.messages(containing=b"zzz")
    ]
    assert len(found) == 3
    # The least of several: threads that other tests have left may allocate meanwhile.
    assert min(memory_of_a_search(tail) for _ in range(5)) < BODY_SIZE


def memory_of_a_search(tail: LogTail) -> int:
    """Return how many bytes a search for what occurs everywhere takes, at its most."""
    tracemalloc.start()
    for _ in tail.messages(containing=b"z"):
        pass
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


@pytest.mark.parametrize(
    "data",
    [
        SOUND[:-7],
        SOUND + SOUND[:3],
        SOUND[:4] + b"\1\2\3\4" + SOUND[8:],
        SOUND[:87] + b"\x40" + SOUND[88:],  # the body's size
        b"<html>k1 topic_deleted flights</html>",
    ],
)
def test_what_is_damaged_holds_nothing_and_says_so(data: bytes) -> None:
    tail = tail_of(data)

    assert list(tail.messages()) == []
    assert (tail.events(), tail.group_facts()) == ([], [])
    assert tail.end_of_topic("flights") is None
    assert tail.damage is not None


def test_an_address_with_an_odd_port_can_be_shown() -> None:
    port = SOUND.index(b"\x0a\0\0\1") + 4  # behind the store host's address

    [message] = tail_of(SOUND[:port] + b"\xff" * 4 + SOUND[port + 4 :]).messages()

    assert message.shown().offset_message_id.startswith("0A000001FFFFFFFF")
