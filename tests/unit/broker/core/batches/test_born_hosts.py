"""A peer's address has room in its records, whatever family they were laid out for."""

from __future__ import annotations

import pytest

from eruca.contract.properties import encode_properties
from eruca.contract.records import NO_HOST, Host, Record, decode_record, encode_unstamped
from eruca.contract.wire import encode_batch
from eruca_broker.core.batches.batch import Batch, check_batch
from eruca_broker.core.batches.born_hosts import with_room_for

HOST = Host.parse("10.0.0.1", 10_911)
PEER = Host.parse("10.1.2.3", 40_000)
PEER_V6 = Host.parse("2001:db8::7", 40_000)


def records(count: int, born_host: Host = NO_HOST) -> list[Record]:
    return [
        Record(
            topic="orders",
            body=b"x" * (number % 7 + 1),
            queue_id=2,
            born_timestamp=1_700_000_000_000 + number,
            born_host=born_host,
            properties=encode_properties({"TAGS": "a", "KEYS": "k" * (number % 5 + 1)}),
        )
        for number in range(count)
    ]


def batch_of(sent: list[Record]) -> Batch:
    body = encode_batch([encode_unstamped(record) for record in sent])
    return check_batch(bytearray(body), topic="orders", queue_id=2, store_host=HOST)


def stored(batch: Batch, born_host: Host) -> list[Record]:
    batch.stamp(
        queue_offset=7,
        log_offset=1_000,
        store_timestamp=1_700_000_000_999,
        store_host=HOST,
        born_host=born_host,
    )
    return [decode_record(batch.records, start) for start in batch.starts]


@pytest.mark.parametrize("count", [1, 2, 40])
def test_records_without_room_for_an_ipv6_peer_are_given_some(count: int) -> None:
    sent = records(count)
    narrow = batch_of(sent)

    wide, born_host = with_room_for(narrow, PEER_V6)
    read = stored(wide, born_host)

    assert wide.size == narrow.size + 12 * count
    assert {record.born_host for record in read} == {PEER_V6}
    assert {record.store_host for record in read} == {HOST}
    assert [record.body for record in read] == [record.body for record in sent]
    assert [record.property_map() for record in read] == [r.property_map() for r in sent]
    assert [record.queue_offset for record in read] == list(range(7, 7 + count))
    assert [record.log_offset for record in read] == [1_000 + start for start in wide.starts]
    assert [wide.properties_of(row) for row in range(count)] == [
        record.properties.encode() for record in read
    ]


@pytest.mark.parametrize(
    ("room_for", "peer"), [(PEER, PEER), (PEER_V6, PEER_V6), (PEER, NO_HOST), (PEER_V6, NO_HOST)]
)
def test_records_that_fit_are_not_touched(room_for: Host, peer: Host) -> None:
    batch = batch_of(records(3, Host(bytes(len(room_for.address)), 0)))

    assert with_room_for(batch, peer) == (batch, peer)


def test_an_ipv4_peer_is_mapped_into_records_with_room_for_ipv6() -> None:
    batch = batch_of(records(2, Host(bytes(16), 0)))

    batch, born_host = with_room_for(batch, PEER)

    assert {record.born_host for record in stored(batch, born_host)} == {
        Host.parse("::ffff:10.1.2.3", 40_000)
    }
