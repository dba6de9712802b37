"""The records media type: batches and pulls are read as written, and nothing short of whole."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.limits import BATCH_COUNT_MAX
from eruca.contract.records import RECORD_SIZE_MIN, encode_record
from eruca.contract.wire import (
    BATCH_MAGIC,
    BATCH_PREAMBLE,
    MULTI_PULL_MAGIC,
    MULTI_PULL_PREAMBLE,
    PULL_MAGIC,
    PULL_PREAMBLE,
    MalformedRecordsError,
    PullStatus,
    batch_extent,
    batch_sizes,
    decode_multi_pull,
    decode_pull,
    encode_batch,
    encode_multi_pull_heads,
    encode_pull_head,
    record_starts,
)
from support.records import INT64, example_record

BLOBS = st.lists(
    st.integers(RECORD_SIZE_MIN, RECORD_SIZE_MIN + 50).map(bytes), min_size=1, max_size=10
)
RECORDS = [encode_record(example_record(body=bytes([65 + n]) * n)) for n in range(3)]


@given(BLOBS)
def test_a_batch_is_read_as_it_was_written(records: list[bytes]) -> None:
    body = encode_batch(records)

    count, start = batch_extent(body)

    sizes = batch_sizes(body, count)
    assert count == len(records)
    assert list(sizes) == [len(record) for record in records]
    assert body[start:] == b"".join(records)
    starts = record_starts(sizes)
    assert [body[start:][at : at + size] for at, size in zip(starts, sizes, strict=True)] == records


def test_a_batch_cut_short_or_run_on_is_refused() -> None:
    """Exhaustive over the cut."""
    body = encode_batch(RECORDS)

    for cut in range(len(body)):
        with pytest.raises(MalformedRecordsError):
            batch_extent(body[:cut])
    with pytest.raises(MalformedRecordsError):
        batch_extent(body + b"\0")


def test_a_flipped_bit_in_a_batchs_preamble_is_refused() -> None:
    body = encode_batch(RECORDS)

    for position in range(BATCH_PREAMBLE.size):
        for bit in range(8):
            damaged = bytearray(body)
            damaged[position] ^= 1 << bit
            with pytest.raises(MalformedRecordsError):
                batch_extent(damaged)


def batch(count: int, size: int, *, magic: bytes = BATCH_MAGIC, reserved: int = 0) -> bytes:
    preamble = BATCH_PREAMBLE.pack(magic, count, size, reserved)
    return preamble + bytes(4 * count + size)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "too few"),
        (batch(1, 91, magic=b"ERB9"), "found b'ER"),
        (batch(1, 91, reserved=1), "found b'ER"),
        (batch(0, 0), "1 to 8192"),
        (batch(BATCH_COUNT_MAX + 1, (BATCH_COUNT_MAX + 1) * 91), "1 to 8192"),
        (batch(2, 2 * RECORD_SIZE_MIN - 1), "do not make a body"),
    ],
)
def test_the_error_says_what_is_wrong_with_a_batch(body: bytes, reason: str) -> None:
    with pytest.raises(MalformedRecordsError, match=reason):
        batch_extent(body)


def test_the_largest_batch_is_read() -> None:
    body = batch(BATCH_COUNT_MAX, BATCH_COUNT_MAX * RECORD_SIZE_MIN)

    assert batch_extent(body)[0] == BATCH_COUNT_MAX


def pull(
    status: PullStatus, following: int, lowest: int, highest: int, records: list[bytes]
) -> bytes:
    head = encode_pull_head(
        status,
        next_offset=following,
        min_offset=lowest,
        max_offset=highest,
        sizes=struct.pack(f">{len(records)}I", *map(len, records)),
        records_size=sum(map(len, records)),
    )
    return head + b"".join(records)


PULLS = st.builds(
    pull, st.sampled_from(PullStatus), INT64, INT64, INT64, st.lists(st.binary(), max_size=5)
)


@given(
    st.sampled_from(PullStatus), INT64, INT64, INT64, st.lists(st.binary(max_size=50), max_size=5)
)
def test_a_pull_is_read_as_it_was_written(
    status: PullStatus, following: int, lowest: int, highest: int, records: list[bytes]
) -> None:
    pulled = decode_pull(pull(status, following, lowest, highest, records))

    assert pulled[:4] == (status, following, lowest, highest)
    assert list(pulled.sizes) == [len(record) for record in records]
    assert pulled.records == b"".join(records)


def test_an_empty_pull_is_its_preamble() -> None:
    head = encode_pull_head(PullStatus.NO_NEW_MESSAGE, next_offset=7, min_offset=0, max_offset=7)

    pulled = decode_pull(head)

    assert pulled.status is PullStatus.NO_NEW_MESSAGE
    assert pulled.sizes == ()
    assert record_starts(pulled.sizes) == []


def test_a_pull_cut_short_or_run_on_is_refused() -> None:
    """Exhaustive over the cut."""
    body = pull(PullStatus.FOUND, 3, 0, 3, RECORDS)

    for cut in range(len(body)):
        with pytest.raises(MalformedRecordsError):
            decode_pull(body[:cut])
    with pytest.raises(MalformedRecordsError):
        decode_pull(body + b"\0")


@pytest.mark.parametrize(
    "preamble",
    [
        (b"ERP2", 0, 0, 0, 0, 0, 0),
        (PULL_MAGIC, 0, 0, len(PullStatus), 0, 0, 0),
        (PULL_MAGIC, 0, 1, 0, 0, 0, 0),
    ],
)
def test_a_pulls_preamble_must_make_sense(preamble: tuple[bytes | int, ...]) -> None:
    with pytest.raises(MalformedRecordsError, match="not a complete pull"):
        decode_pull(PULL_PREAMBLE.pack(*preamble))


def test_sizes_that_do_not_add_up_are_refused() -> None:
    body = bytearray(pull(PullStatus.FOUND, 3, 0, 3, RECORDS))
    body[PULL_PREAMBLE.size + 3] ^= 1

    with pytest.raises(MalformedRecordsError, match="add up"):
        decode_pull(body)


def multi_pull(sections: list[tuple[int, bytes]]) -> bytes:
    preamble, heads = encode_multi_pull_heads((index, len(block)) for index, block in sections)
    return preamble + b"".join(
        head + block for head, (_, block) in zip(heads, sections, strict=True)
    )


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), PULLS), max_size=4))
def test_a_pull_of_many_queues_is_read_as_it_was_written(
    sections: list[tuple[int, bytes]],
) -> None:
    body = multi_pull(sections)

    pulled = decode_multi_pull(body)

    assert [(index, part[:-1]) for index, part in pulled] == [
        (index, decode_pull(block)[:-1]) for index, block in sections
    ]
    for _, part in pulled:
        assert body[part.start : part.start + len(part.records)] == part.records


def test_a_pull_of_many_queues_cut_short_or_run_on_is_refused() -> None:
    """Exhaustive over the cut."""
    block = pull(PullStatus.FOUND, 3, 0, 3, RECORDS)
    body = multi_pull([(0, block), (4, block)])

    for cut in range(len(body)):
        with pytest.raises(MalformedRecordsError):
            decode_multi_pull(body[:cut])
    with pytest.raises(MalformedRecordsError, match="bytes follow"):
        decode_multi_pull(body + b"\0")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "too few"),
        (MULTI_PULL_PREAMBLE.pack(PULL_MAGIC, 0), "found b'ER"),
        (MULTI_PULL_PREAMBLE.pack(MULTI_PULL_MAGIC, 1), "section is truncated"),
    ],
)
def test_the_error_says_what_is_wrong_with_a_pull_of_many(body: bytes, reason: str) -> None:
    with pytest.raises(MalformedRecordsError, match=reason):
        decode_multi_pull(body)


def test_the_order_of_the_statuses_is_the_wires() -> None:
    assert [status.value for status in PullStatus] == [
        "found",
        "no_new_message",
        "no_matched_message",
        "offset_too_small",
        "offset_too_large",
        "damaged",
    ]
