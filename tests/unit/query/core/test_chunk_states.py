"""States of chunks: whatever the log does, few are searched without indexes, and none for long."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eruca_query.core import chunk_states
from eruca_query.core.chunk_states import SETTLED_ROWS_MIN, Chunk, ChunkLimits, begins_indexed

BLOCK_MAX = 40  # rows of a block
LIMITS = ChunkLimits(rows=200, span_ms=1_000, far_bytes=100, near_bytes=40)


def chunk_of(rows: int, *, is_indexed: bool) -> Chunk:
    return Chunk(1, 0, first_ms=0, row_count=rows, is_indexed=is_indexed)


@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize(
    ("rows", "now_ms", "is_full"),
    [(199, 999, False), (200, 0, True), (0, 1_000, True), (0, -5_000, False)],
)
def test_a_chunk_ends_by_rows_or_time(
    rows: int, now_ms: int, is_full: bool, is_indexed: bool
) -> None:
    assert chunk_of(rows, is_indexed=is_indexed).is_full(LIMITS, now_ms) is is_full


def test_without_indexes_a_chunk_ends_after_fewer_rows() -> None:
    limits = replace(LIMITS, rows=10 * chunk_states.BARE_ROWS_MAX)
    rows = chunk_states.BARE_ROWS_MAX

    assert chunk_of(rows, is_indexed=False).is_full(limits, 0)
    assert not chunk_of(rows, is_indexed=True).is_full(limits, 0)


def test_distances_of_which_a_bare_chunk_would_be_indexed_at_once_are_refused() -> None:
    with pytest.raises(AssertionError):
        ChunkLimits(rows=1, span_ms=1, far_bytes=1, near_bytes=2)


@pytest.mark.parametrize(
    ("rows", "more", "is_indexed", "doubles"),
    [
        (0, SETTLED_ROWS_MIN - 1, True, False),
        (0, SETTLED_ROWS_MIN, True, True),
        (SETTLED_ROWS_MIN, SETTLED_ROWS_MIN - 1, True, False),
        (SETTLED_ROWS_MIN, SETTLED_ROWS_MIN, True, True),
        (3 * SETTLED_ROWS_MIN, SETTLED_ROWS_MIN, True, True),
        (0, SETTLED_ROWS_MIN, False, False),
    ],
)
def test_an_indexed_chunk_is_settled_each_time_its_rows_have_doubled(
    rows: int, more: int, is_indexed: bool, doubles: bool
) -> None:
    assert chunk_of(rows, is_indexed=is_indexed).doubles_by(more) is doubles


class FilledChunks(RuleBasedStateMachine):
    """A log that grows, and is read in blocks, one byte a row, beside the chunks it fills."""

    def __init__(self) -> None:
        super().__init__()
        self.log_end = self.position = 0
        self.closed: list[Chunk] = []
        self.open: Chunk | None = None
        self.left: set[int] = set()  # chunks that were not settled when they should have been
        self.were_indexed: set[int] = set()

    @rule(rows=st.integers(1, 600))
    def grow(self, rows: int) -> None:
        self.log_end += rows

    @precondition(lambda self: self.position < self.log_end)
    @rule(
        rows=st.integers(1, BLOCK_MAX),
        is_lost=st.booleans(),
        is_settled=st.booleans(),
    )
    def read(self, rows: int, is_lost: bool, is_settled: bool) -> None:
        """Read a block; the process may die before the commit, or before it settles chunks."""
        rows = min(rows, self.log_end - self.position)
        behind = self.log_end - self.position - rows
        chunk, closed, unsettled = self.open, list(self.closed), set[int]()
        if chunk is not None and chunk.is_full(LIMITS, now_ms=0):
            closed.append(chunk)
            unsettled.add(chunk.number)
            chunk = None
        if chunk is None:
            chunk = Chunk(len(closed), self.position, 0, 0, begins_indexed(LIMITS, behind))
        chunk = replace(chunk, row_count=chunk.row_count + rows)
        if chunk.wants_indexes(LIMITS, behind):
            unsettled.add(chunk.number)
        if is_lost:
            return
        self.open, self.closed, self.position = chunk, closed, self.position + rows
        bare = {chunk.number for chunk in closed if not chunk.is_indexed}
        assert len(bare - self.left) <= 1
        if is_settled:
            self.settle(unsettled)
        else:
            self.left |= unsettled

    @rule()
    def keep_up(self) -> None:
        """Settle the closed chunks, and the open one if nobody reads on."""
        chunks = self.closed if self.open is None else [*self.closed, self.open]
        self.settle({chunk.number for chunk in chunks})

    def settle(self, numbers: set[int]) -> None:
        def settled(chunk: Chunk) -> Chunk:
            return replace(chunk, is_indexed=chunk.is_indexed or chunk.number in numbers)

        self.closed = [settled(chunk) for chunk in self.closed]
        self.open = None if self.open is None else settled(self.open)
        self.left -= numbers

    @invariant()
    def few_rows_are_searched_without_indexes(self) -> None:
        assert all(chunk.is_indexed or chunk.number in self.left for chunk in self.closed)
        if self.open is not None and not self.open.is_indexed:
            assert self.open.row_count < LIMITS.rows + BLOCK_MAX

    @invariant()
    def at_the_logs_end_everything_is_indexed(self) -> None:
        if self.open is not None and self.log_end - self.position == 0:
            assert self.open.is_indexed or self.open.number in self.left

    @invariant()
    def indexes_are_kept(self) -> None:
        chunks = [*self.closed, *([] if self.open is None else [self.open])]
        now = {chunk.number for chunk in chunks if chunk.is_indexed}
        assert now >= self.were_indexed
        self.were_indexed = now

    @invariant()
    def chunks_hold_what_was_read(self) -> None:
        rows = sum(chunk.row_count for chunk in self.closed)
        assert rows + (0 if self.open is None else self.open.row_count) == self.position


TestFilledChunks = FilledChunks.TestCase
TestFilledChunks.settings = settings(max_examples=60, deadline=None)
