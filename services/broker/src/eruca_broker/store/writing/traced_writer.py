"""A writer whose appends, flushes and publications are spans, for requests that are sampled.

One write, one flush and one publication serve the requests of a whole tick, or of several. So each
is a span of its own with links (:mod:`eruca_chassis.spans.tracing`)::

    request ◄──link──► append ◄──link── flush
                          ▲
                          └─────link── project

``append`` is from the first sampled request of a tick to the end of the write of the log. ``flush``
is one fdatasync, whenever it comes. ``project`` feeds the queues and the index, and folds events.

A request is an *origin* if it appends a batch or announces one. Of requests that take a turn of a
group together, the first is the origin. Work without a sampled origin has no span. Marks of appends
that wait for their flush or their publication are limited; beyond the limit the oldest are
forgotten, and have no span for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import time_ns
from typing import Any, Final, NamedTuple, ParamSpec

from eruca.contract.records import Host
from eruca_broker.core.batches.batch import Batch
from eruca_broker.core.state.events import Event
from eruca_broker.store.log.appended import Appended, Done, GroupDone
from eruca_broker.store.writing.writer import Writer
from eruca_chassis.spans.tracing import LINKS_MAX, Linked, Tracing

P = ParamSpec("P")

MARKS_MAX: Final = 256  # appends that wait for their flush, and for their publication


class _Mark(NamedTuple):
    """An append with a span."""

    end_offset: int  # of the log
    span: Linked


class TracedWriter(Writer):
    """The writer of a store whose work is traced.

    Args:
        tracing: Makes the spans.
        arguments, named: As for :class:`~eruca_broker.store.writing.writer.Writer`.
    """

    def __init__(self, tracing: Tracing, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **named)
        self._tracing = tracing
        self._origins: dict[Linked, None] = {}  # of the batches that are not written yet
        self._began_ns = 0  # when the first of them came
        self._flush_began_ns = 0
        self._unflushed: deque[_Mark] = deque(maxlen=MARKS_MAX)
        self._unpublished: deque[_Mark] = deque(maxlen=MARKS_MAX)

    def append(
        self,
        batch: Batch,
        born_host: Host | None,
        done: Done | None,
        *,
        event: Event | None = None,
        is_answered_first: bool = False,
    ) -> None:
        """Accept a batch, and note for whom."""
        super().append(batch, born_host, done, event=event, is_answered_first=is_answered_first)
        self.note_origin()

    def append_group(
        self,
        parts: Sequence[tuple[Batch, Event | None]],
        born_host: Host | None,
        done: GroupDone,
        *,
        despite_full_disk: bool = False,
    ) -> None:
        """Accept several batches, and note for whom."""
        super().append_group(parts, born_host, done, despite_full_disk=despite_full_disk)
        self.note_origin()

    def announce(self, append: Callable[[], None]) -> None:
        """Call *append* before the next batch is accepted, and note for whom."""
        super().announce(append)
        self.note_origin()

    def noting(self, gather: Callable[P, None]) -> Callable[P, None]:
        """Return a function that gathers as *gather* does, and notes for whom."""

        def gather_and_note(*arguments: P.args, **named: P.kwargs) -> None:
            gather(*arguments, **named)
            self.note_origin()

        return gather_and_note

    def note_origin(self) -> None:
        """Note that the next write is also for the request for which the caller works."""
        origin = self._tracing.current()
        if origin is None or len(self._origins) >= LINKS_MAX:
            return
        if not self._origins:
            self._began_ns = time_ns()
        self._origins[origin] = None

    def write(self) -> None:
        """Write everything accepted, and publish or flush it."""
        origins = self._origins
        super().write()
        if self._origins is origins:  # else they were written, and there may be new ones already
            origins.clear()  # of batches that were taken back

    def follow(self) -> None:
        """Become a replica, whose work is for no request."""
        super().follow()
        self._origins.clear()
        self._unflushed.clear()
        self._unpublished.clear()

    def _write_log(self, accepted: Sequence[Appended]) -> None:
        origins, self._origins = self._origins, {}
        error: OSError | None = None
        try:
            super()._write_log(accepted)
        except OSError as refusal:
            error = refusal
            raise
        finally:
            if origins:
                figures = {
                    "eruca.log_offset": accepted[0].log_offset,
                    "eruca.bytes": accepted[-1].end_offset - accepted[0].log_offset,
                    "eruca.batches": len(accepted),
                }
                span = self._tracing.worked("append", self._began_ns, origins, figures, error)
                if error is None and span is not None:
                    mark = _Mark(accepted[-1].end_offset, span)
                    self._unflushed.append(mark)
                    self._unpublished.append(mark)

    def _begin_flush(self) -> asyncio.Future[None]:
        if self._flush is None:
            self._flush_began_ns = time_ns()
        return super()._begin_flush()

    def _flushed(self, target: int, flush: asyncio.Future[None]) -> None:
        if not flush.cancelled():
            self._tell("flush", self._flush_began_ns, self._unflushed, target, flush.exception())
        super()._flushed(target, flush)

    def _project(self, published: list[Appended], end_offset: int) -> None:
        began_ns = time_ns()
        super()._project(published, end_offset)
        self._tell("project", began_ns, self._unpublished, end_offset)

    def _tell(
        self,
        name: str,
        began_ns: int,
        marks: deque[_Mark],
        end_offset: int,
        error: BaseException | None = None,
    ) -> None:
        """Record work for everything before *end_offset*, if any of it has a mark."""
        covered = []
        while marks and marks[0].end_offset <= end_offset:
            covered.append(marks.popleft().span)
        if covered:
            figures = {"eruca.log_end_offset": end_offset}
            self._tracing.worked(name, began_ns, covered, figures, error)
