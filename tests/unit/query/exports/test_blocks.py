"""Blocks: a pull's answer, read as the contract's decoder reads it, and told piece by piece."""

from __future__ import annotations

import numpy as np
import pytest

from eruca.contract.records import Record, encode_record
from eruca.contract.wire import MalformedRecordsError, PullStatus, decode_pull
from eruca_query.exports.rows.blocks import Block, decode_block
from support.pulls import pull_of

RECORDS = [encode_record(Record("orders", bytes(n))) for n in range(4)]


@pytest.mark.parametrize("records", [[], RECORDS])
@pytest.mark.parametrize("status", list(PullStatus))
def test_an_answer_is_read_as_the_contract_reads_it(
    records: list[bytes], status: PullStatus
) -> None:
    body = pull_of(records, status)

    block, expected = decode_block(body), decode_pull(body)

    assert block.status is expected.status
    assert (block.min_offset, block.max_offset) == (2, 11)
    assert block.sizes.tolist() == list(expected.sizes)
    assert block.records == expected.records


def test_an_answer_cut_anywhere_is_none() -> None:
    """Exhaustive over the cut."""
    body = pull_of(RECORDS)

    for size in range(len(body)):
        with pytest.raises(MalformedRecordsError):
            decode_block(body[:size])


@pytest.mark.parametrize("place", [0, 7, 11, 15, 43])
def test_an_answer_with_a_wrong_preamble_is_none(place: int) -> None:
    body = bytearray(pull_of(RECORDS))
    body[place] ^= 0x40

    with pytest.raises(MalformedRecordsError):
        decode_block(bytes(body))


def test_a_block_tells_the_range_of_its_first_messages() -> None:
    sizes = np.array([len(raw) for raw in RECORDS], np.int64)
    block = Block("broker-a", 3, 100, sizes, memoryview(b"".join(RECORDS)))

    assert block.first(3).text == "broker-a/3:100-103"
