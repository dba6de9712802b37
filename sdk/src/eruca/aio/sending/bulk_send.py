"""The batches of one ``send_many``: the time limit of each, and the end of the call.

A list for thousands of queues makes thousands of batches. If their time limits started with the
call, the last batches would time out on a slow machine before their first attempt. So:

1. A batch's time limit starts with its first attempt. A producer sends at most
   :data:`BULK_IN_FLIGHT_MAX` batches at a time. A batch that waits for earlier ones of its lane is
   none of them.
2. If no broker settles a batch within the time limit of one batch, the untried batches fail without
   an attempt. So every call ends soon after the cluster is gone, however long its list is.

Concurrency rule: belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from typing import Final

from eruca.aio.sending.send_lane import PendingBatch
from eruca.contract.errors import ErucaError, TimeoutExpiredError
from eruca.core.producing.send_result import Stored

# batches; half of the connections to one broker are left to other sends
BULK_IN_FLIGHT_MAX: Final = 32


class BulkSend:
    """The batches of one call.

    Args:
        seconds: Time limit of one batch, all attempts together.

    Attributes:
        stalled: Why no further batch is sent; None while batches are.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._untried: dict[PendingBatch, None] = {}
        self._settled_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self.stalled: TimeoutExpiredError | None = None

    def add(self, batch: PendingBatch) -> asyncio.Future[Stored]:
        """Add a batch; return the future of its place."""
        assert batch.whole is None
        batch.begin = self._begin
        batch.whole = self._loop.create_future()
        batch.whole.add_done_callback(self._on_done)
        self._untried[batch] = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._settled_at + self._seconds, self._look)
        return batch.whole

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self, batch: PendingBatch) -> None:
        """Start the time limit of a batch before its first attempt."""
        self._untried.pop(batch, None)
        batch.deadline = self._loop.time() + self._seconds

    def _on_done(self, whole: asyncio.Future[Stored]) -> None:
        if whole.cancelled():
            return
        error = whole.exception()
        # A refusal settles a batch as well: a broker answers.
        if error is None or (isinstance(error, ErucaError) and not error.retryable):
            self._settled_at = self._loop.time()

    def _look(self) -> None:
        due = self._settled_at + self._seconds
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._look)
            return
        self.stalled = TimeoutExpiredError(
            f"not tried: no batch was stored for {self._seconds:g} s, so the remaining batches"
            " were not sent",
            fix="send the messages in failed_indexes again; a larger timeout waits longer",
        )
        untried, self._untried = self._untried, {}
        for batch in untried:
            assert batch.whole is not None
            if not batch.whole.done():
                batch.whole.set_exception(self.stalled)
