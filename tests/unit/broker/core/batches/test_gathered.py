"""Gathered requests: together they are stored as each would be alone, or not together at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.contract.errors import ErucaError
from eruca.contract.properties import encode_properties
from eruca.contract.records import Host, Record, SysFlag, decode_record, encode_unstamped
from eruca.contract.wire import encode_batch
from eruca_broker.core.batches.batch import Batch, check_batch
from eruca_broker.core.batches.gathered import SINGLE_SIZE_MAX, gather, is_single
from eruca_broker.core.properties.found import KEY_DTYPE
from support.records import has_checksum

HOST = Host.parse("127.0.0.1", 10_911)
HOST_V6 = Host.parse("::1", 10_911)
BLANK_V6 = Host(bytes(16), 0)

FRAGMENTS = ["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "\x01", "\x02", " ", "0", "ab", "\u952e", "\0"]
texts = st.one_of(
    st.builds(
        lambda tag, key: encode_properties({"TAGS": tag, "KEYS": key, "UNIQ_KEY": f"id{key}"}),
        st.sampled_from(["a", "red", "\u952e"]),
        st.text("abc", min_size=1, max_size=9),
    ),
    st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join),
)


def request(number: int, text: str = "TAGS\x01a\x02", host: Host = HOST) -> bytes:
    fields = Record(
        topic="orders",
        body=f"body of {number}".encode(),
        queue_id=2,
        born_timestamp=1_700_000_000_000 + number,
        properties=text,
        store_host=BLANK_V6 if host.is_v6 else Host(bytes(4), 0),
    )
    return encode_batch([encode_unstamped(fields)])


def peers(count: int) -> list[Host]:
    return [Host.parse("10.1.2.3", 40_000 + number) for number in range(count)]


def gathered(requests: list[bytes], host: Host = HOST, topic: str = "orders") -> Batch | None:
    """Gather *requests*, whose bodies follow heads of several sizes."""
    heads = [bytes(number % 4 * 83) for number in range(len(requests))]
    singles = zip(heads, requests, peers(len(requests)), strict=True)
    return gather(host, topic, 2, [(h + body, len(h), peer.encode()) for h, body, peer in singles])


def stamped(batch: Batch, born_host: Host | None, first: int, at: int, host: Host) -> bytes:
    """Return the batch's consume queue entries; its records are as in the log then."""
    return bytes(
        batch.stamp(
            queue_offset=first,
            log_offset=at,
            store_timestamp=123,
            store_host=host,
            born_host=born_host,
        )
    )


def keys_of(batch: Batch) -> list[tuple[int, int]]:
    """Return each key's hash, and the start of its record."""
    keys: list[tuple[int, int]] = np.frombuffer(batch.found.keys, KEY_DTYPE).tolist()
    return keys


def alone(requests: list[bytes], host: Host) -> tuple[bytes, bytes, list[tuple[int, int]]]:
    """Return records, entries and keys of requests that are appended one after the other."""
    records, entries, keys = b"", b"", list[tuple[int, int]]()
    for number, (body, peer) in enumerate(zip(requests, peers(len(requests)), strict=True)):
        batch = check_batch(bytearray(body), topic="orders", queue_id=2, store_host=host)
        assert batch.count == 1
        keys += [(hash_, start + len(records)) for hash_, start in keys_of(batch)]
        entries += stamped(batch, peer, 70 + number, 5_000 + len(records), host)
        records += bytes(batch.records)
    return records, entries, keys


@pytest.mark.parametrize("host", [HOST, HOST_V6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("count", [1, 2, 64])
def test_plain_requests_are_one_batch_that_equals_theirs(count: int, host: Host) -> None:
    requests = [request(number, host=host) for number in range(count)]

    batch = gathered(requests, host)

    assert batch is not None
    entries = stamped(batch, None, 70, 5_000, host)
    assert (bytes(batch.records), entries, keys_of(batch)) == alone(requests, host)
    for start, peer in zip(batch.starts, peers(count), strict=True):
        found = decode_record(batch.records, start)
        assert found.born_host == peer
        assert has_checksum(bytes(batch.records[start : start + found.size]))


@settings(max_examples=200, deadline=None)
@given(data=st.data(), some=st.lists(texts, min_size=1, max_size=5))
def test_what_is_gathered_is_what_python_would_take_one_by_one(
    data: st.DataObject, some: list[str]
) -> None:
    requests = [request(number, text) for number, text in enumerate(some)]
    for _ in range(data.draw(st.integers(0, 2))):
        row = data.draw(st.integers(0, len(requests) - 1))
        changed = bytearray(requests[row])
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
        requests[row] = bytes(changed)

    batch = gathered(requests)

    if batch is not None:
        entries = stamped(batch, None, 70, 5_000, HOST)
        assert (bytes(batch.records), entries, keys_of(batch)) == alone(requests, HOST)


@pytest.mark.parametrize("cut", [0, 3, 4, 16, 19, 20, 40, 100, -1])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_request_that_ends_early_is_not_gathered_with_the_next_ones_bytes(
    cut: int, row: int
) -> None:
    requests = [request(number) for number in range(3)]
    requests[row] = requests[row][:cut]

    assert gathered(requests) is None


def test_a_request_whose_surplus_is_the_next_ones_beginning_is_not_gathered() -> None:
    first, second = request(0), request(1)

    assert gathered([first + second[:7], second[7:]]) is None


@pytest.mark.parametrize(
    "other",
    [
        encode_batch([request(0)[20:], request(1)[20:]]),
        request(0, host=HOST_V6),
        request(0, "DELAY\x013\x02"),
        request(0, "UNIQ_KEY\x01..\x02"),
        request(0).replace(b"orders", b"ordert"),
        b"",
    ],
    ids=["two records", "room for IPv6", "a delay", "no name", "another topic", "nothing"],
)
def test_one_that_is_not_plain_leaves_all_of_them_to_python(other: bytes) -> None:
    assert gathered([request(0), other, request(1)]) is None


def test_room_for_the_peers_ipv6_address_is_left_to_python() -> None:
    body = bytearray(request(0))
    body[20 + 39] |= SysFlag.BORN_HOST_V6

    assert gathered([bytes(body)]) is None


def test_a_topic_too_long_for_one_byte_is_left_to_python() -> None:
    assert gathered([request(0)], topic="%RETRY%" + "g" * 125) is None


def test_a_single_is_small_and_says_that_it_has_one_record() -> None:
    assert is_single(request(0))
    assert not is_single(encode_batch([request(0)[20:]] * 2))
    assert not is_single(request(0) + bytes(SINGLE_SIZE_MAX))
    assert not is_single(b"")
    assert is_single(request(0)[:8])  # the rest is examined when it is gathered


def test_what_is_gathered_may_be_refused_alone_but_not_the_other_way_round() -> None:
    """Python refuses what it refuses in a batch, with the same words."""
    damaged = request(0).replace(b"body of 0", b"body of 1")

    assert gathered([damaged]) is None
    with pytest.raises(ErucaError, match="does not match its CRC"):
        check_batch(bytearray(damaged), topic="orders", queue_id=2, store_host=HOST)
