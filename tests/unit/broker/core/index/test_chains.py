"""Slot chains: a batch gives what adding its entries one after another gives."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eruca_broker.core.index.chains import chain

SLOTS = 7
batches = st.lists(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=60), max_size=6)


def chain_one_by_one(slots: list[int], hashes: list[int], first: int) -> list[int]:
    """Do what RocketMQ does for each entry."""
    previous = []
    for number, key_hash in enumerate(hashes, first):
        previous.append(slots[key_hash % SLOTS])
        slots[key_hash % SLOTS] = number
    return previous


@given(batches)
def test_batches_chain_as_single_entries_do(some: list[list[int]]) -> None:
    slots, expected_slots = np.zeros(SLOTS, np.int32), [0] * SLOTS
    first = 1
    for hashes in some:
        empty_before = expected_slots.count(0)
        expected = chain_one_by_one(expected_slots, hashes, first)

        previous, used = chain(slots, np.array(hashes, np.int32), first)

        assert previous.tolist() == expected
        assert slots.tolist() == expected_slots
        assert used == empty_before - expected_slots.count(0)
        first += len(hashes)


def test_a_batch_of_one_key_is_one_chain() -> None:
    slots = np.zeros(SLOTS, np.int32)

    previous, used = chain(slots, np.full(1000, 3, np.int32), 1)

    assert previous.tolist() == list(range(1000))
    assert (slots[3], used) == (1000, 1)
