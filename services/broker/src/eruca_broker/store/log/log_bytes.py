"""The bytes of the log, as pulls use them: from its segments, or from the tier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eruca.core.messages.record_columns import Int64Array
from eruca_broker.store.log.segment import Segment


class LogBytes(Protocol):
    """The log, or the part of it that is in the tier."""

    def segment_at(self, offset: int) -> Segment | None:
        """Return the mapped segment that holds *offset*; None: none does."""
        ...

    def view(self, offset: int, size: int, *, is_needed: bool = False) -> memoryview:
        """Return *size* bytes from *offset* on; see :meth:`.CommitLog.view`."""
        ...

    def views(self, starts: Sequence[int], ends: Sequence[int]) -> list[memoryview]:
        """Return stretches, each within one segment; see :meth:`.CommitLog.views`."""
        ...

    def gathered(self, starts: Int64Array, sizes: Int64Array) -> memoryview | None:
        """Return copies of records, one after another; see :meth:`.CommitLog.gathered`."""
        ...
