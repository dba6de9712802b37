"""Slot chains: a batch gives what adding its entries one after another gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca_broker.core.index import chains as index_chains
from eruca_broker.core.index.chains import chain

SLOTS = 7
batches = st.lists(st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=60), max_size=6)


def chain_one_by_one(slots: list[int], keys: list[int], first: int) -> list[int]:
    """Do what RocketMQ does for each entry."""
    previous = []
    for number, key in enumerate(keys, first):
        previous.append(slots[key])
        slots[key] = number
    return previous


@pytest.mark.parametrize("loop_count_max", [0, 3, 1000], ids=["sorted", "either", "looped"])
@given(data=st.data())
def test_batches_chain_as_single_entries_do(loop_count_max: int, data: st.DataObject) -> None:
    slots, expected_slots = np.zeros(SLOTS, np.int32), [0] * SLOTS
    first = 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_chains, "_LOOP_COUNT_MAX", loop_count_max)
        for keys in data.draw(batches):
            empty_before = expected_slots.count(0)
            expected = chain_one_by_one(expected_slots, keys, first)

            previous, used = chain(slots, np.array(keys, np.int64), first)

            assert previous.tolist() == expected
            assert slots.tolist() == expected_slots
            assert used == empty_before - expected_slots.count(0)
            first += len(keys)


def test_a_batch_of_one_key_is_one_chain() -> None:
    slots = np.zeros(SLOTS, np.int32)

    previous, used = chain(slots, np.full(1000, 3, np.int64), 1)

    assert previous.tolist() == list(range(1000))
    assert (slots[3], used) == (1000, 1)
