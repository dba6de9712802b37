"""Pieces of a snapshot: all timers, in no more than they may hold, through the log and back."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from eruca_broker.core.state.events import decode_event, encode_event
from eruca_broker.core.state.snapshots import StateSnapshot
from eruca_broker.core.state.timers_events import TIMERS_PER_ITEM, rows_of, timer_pieces
from support.records import decode_draft
from support.stores import STORE_HOST

numbers = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(numbers, numbers), max_size=200), st.integers(1, 3))
def test_what_is_pending_survives_a_snapshot(rows: list[tuple[int, int]], items_max: int) -> None:
    given_rows = np.array(rows, np.int64).reshape(-1, 2)

    pieces = list(timer_pieces(given_rows, 77, items_max))
    snapshot = StateSnapshot(1, 1, timers=[piece for piece, _ in pieces])
    record = decode_draft(encode_event(snapshot, now_ms=0, host=STORE_HOST))
    read = decode_event(record.body)

    assert isinstance(read, StateSnapshot)
    assert pieces, "where nothing is pending, that must be said"
    assert all(piece.since == 77 for piece in read.timers)
    assert all(len(rows_of(piece)) <= items_max * TIMERS_PER_ITEM for piece in read.timers)
    assert all(1 <= weight <= items_max for _, weight in pieces)
    assert np.array_equal(np.concatenate([rows_of(piece) for piece in read.timers]), given_rows)
