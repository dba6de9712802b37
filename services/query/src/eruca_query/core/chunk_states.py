"""Decide when a chunk begins and ends, and when it gets its indexes.

States of a chunk::

    begins far from the log's end ──► bare ─────────────────► bare, closed
                                       │              full         │
                the log's end is near, │                           │ built
              or nobody fills it: built│                           │
                                       ▼                           ▼
    begins near the log's end ──────► indexed ──────────────► indexed, closed
                                                      full

Rows are written several times faster into a **bare** chunk, and its indexes are built in one step
from all its rows. Searching a bare chunk reads all of it. So it ends after fewer rows than an
indexed one may, and a log that is read to its end has none.

Building takes as long as it takes. So it is never a part of a block: the log's reader **settles**
the chunks that a block has named. An indexed chunk is settled, too: its new rows are summarized,
and the planner's statistics updated, each time its rows have doubled. An open chunk is settled
between two blocks, and a closed one beside the blocks that follow, which do not touch it.

Invariants: a build has at most one open chunk. A chunk never loses its indexes. While settling
succeeds, blocks are written only while at most one chunk of their build is bare and closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

BARE_ROWS_MAX: Final = 1_000_000
"""Rows of a bare chunk: they are searched, and indexed, within seconds."""
SETTLED_ROWS_MIN: Final = 8_192
"""Rows from which an indexed chunk is settled, each time they have doubled."""


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """The limits at which a chunk is full, and the distances from the log's end that count."""

    rows: int
    span_ms: int  # from its first message's store time
    far_bytes: int  # a chunk that begins so far from the log's end is bare
    near_bytes: int  # a bare chunk gets its indexes at this distance from the log's end

    def __post_init__(self) -> None:
        assert 0 <= self.near_bytes <= self.far_bytes, "a chunk would begin bare and not stay so"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk that is being filled."""

    number: int
    from_offset: int
    first_ms: int
    row_count: int
    is_indexed: bool

    def is_full(self, limits: ChunkLimits, now_ms: int) -> bool:
        """Tell whether a record stored at *now_ms* belongs to the next chunk."""
        rows = limits.rows if self.is_indexed else min(limits.rows, BARE_ROWS_MAX)
        return self.row_count >= rows or now_ms - self.first_ms >= limits.span_ms

    def wants_indexes(self, limits: ChunkLimits, behind_bytes: int) -> bool:
        """Tell whether a chunk gets its indexes *behind_bytes* before the log's end."""
        return not self.is_indexed and behind_bytes <= limits.near_bytes

    def doubles_by(self, rows: int) -> bool:
        """Tell whether an indexed chunk is settled after *rows* more."""
        assert rows >= 0, "a chunk only grows"
        grown = (self.row_count + rows) // SETTLED_ROWS_MIN
        return self.is_indexed and grown.bit_length() > (
            (self.row_count // SETTLED_ROWS_MIN).bit_length()
        )


class Unsettled(NamedTuple):
    """The chunks that blocks have named, by their numbers."""

    closed: Sequence[int] = ()
    open: int | None = None


def begins_indexed(limits: ChunkLimits, behind_bytes: int) -> bool:
    """Tell whether a chunk that begins *behind_bytes* before the log's end has indexes at once."""
    return behind_bytes < limits.far_bytes
