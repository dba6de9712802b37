"""The batches of one ``send_many``: when the time of each begins, and when the call stops.

A list for thousands of queues makes thousands of batches. Were their time to begin with the call,
the last ones would time out on a slow machine before they were tried. So:

1. A batch's time begins when it is first tried; :data:`BULK_IN_FLIGHT_MAX` of a producer are tried
   at a time.
2. Where no broker has settled a batch for as long as one batch may take, those that have not been
   tried fail untried. So a call ends, however long its list is, soon after the cluster is gone.

Concurrency rule: belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from typing import Final

from eruca.aio.sending.send_lane import PendingBatch
from eruca.contract.errors import ErucaError, TimeoutExpiredError
from eruca.core.producing.send_result import Stored

BULK_IN_FLIGHT_MAX: Final = 32  # batches; half of the connections to one broker are left to others


class BulkSend:
    """One call's batches.

    Args:
        seconds: What one batch may take, all attempts together.

    Attributes:
        stalled: Why no further batch is tried; None while batches are.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._untried: dict[PendingBatch, None] = {}
        self._settled_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self.stalled: TimeoutExpiredError | None = None

    def add(self, batch: PendingBatch) -> asyncio.Future[Stored]:
        """Take in a batch; return the future of where it is stored."""
        assert batch.whole is None
        batch.begin = self._begin
        batch.whole = self._loop.create_future()
        batch.whole.add_done_callback(self._on_done)
        self._untried[batch] = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._settled_at + self._seconds, self._look)
        return batch.whole

    def close(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self, batch: PendingBatch) -> None:
        """Let the time of a batch begin, which is to be tried now."""
        self._untried.pop(batch, None)
        batch.deadline = self._loop.time() + self._seconds

    def _on_done(self, whole: asyncio.Future[Stored]) -> None:
        if whole.cancelled():
            return
        error = whole.exception()
        # A refusal settles a batch as well: somebody is there.
        if error is None or (isinstance(error, ErucaError) and not error.retryable):
            self._settled_at = self._loop.time()

    def _look(self) -> None:
        due = self._settled_at + self._seconds
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._look)
            return
        self.stalled = TimeoutExpiredError(
            f"not tried: no batch was stored for {self._seconds:g} s, so the rest was left unsent",
            fix="send again what was not sent, see failed_indexes; a larger timeout waits longer",
        )
        untried, self._untried = self._untried, {}
        for batch in untried:
            assert batch.whole is not None
            if not batch.whole.done():
                batch.whole.set_exception(self.stalled)
