"""Background work that does not die: a step, repeated and supervised.

A failed step is logged, counted and retried after growing pauses; the loop ends only by ``stop``. A
system error such as a full disk is logged in one line, once for as long as it lasts: it is not the
program's fault, and a traceback at each retry helps nobody.

A step need not catch what it cannot handle: this is its outermost frame. Only such a frame catches
every exception and goes on: a loop's, a request's, a handler's, a thread's. Everywhere else such a
clause undoes something, and raises again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

BACK_OFF_SECONDS: Final = 0.5  # after the first failure; doubles with each consecutive one
BACK_OFF_SECONDS_MAX: Final = 30.0
STOP_SECONDS: Final = 5.0  # for a step to finish after ``stop``

_log = structlog.get_logger()


class BackgroundLoop:
    """Runs *step* every *period_seconds*, the first time at once.

    With a period of 0 a step follows the last one immediately, and must wait by itself. A step that
    knows when there is work may return the seconds to pause instead of the period.

    Args:
        name: Name of the loop, for the log.
        step: The repeated step.
        period_seconds: Pause between two steps, unless a step returns another.
        rest_seconds: Minimum of a pause, even if woken: so many events cost one step.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], Awaitable[float | None]],
        *,
        period_seconds: float,
        rest_seconds: float = 0.0,
    ) -> None:
        self.name = name
        self.failure_count = 0  # since the start
        self._step = step
        self._period_seconds = period_seconds
        self._rest_seconds = rest_seconds
        self._failures_in_a_row = 0
        self._lasting: tuple[type[OSError], str] | None = None  # logged error that still lasts
        self._woken = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the loop on the running event loop."""
        assert self._task is None, f"loop {self.name} was started twice"
        self._task = asyncio.create_task(self._run(), name=self.name)

    def wake(self) -> None:
        """End the current pause, but not before ``rest_seconds``.

        A wake during a step ends the pause after it.
        """
        self._woken.set()

    async def stop(self, *, within_seconds: float = STOP_SECONDS) -> None:
        """Stop the loop and wait for it; cancel a step that takes longer than *within_seconds*."""
        self._stopping.set()
        self._woken.set()
        if self._task is None:
            return
        _, running = await asyncio.wait([self._task], timeout=within_seconds)
        for task in running:
            _log.warning("loop cancelled in mid-step", loop=self.name, after=within_seconds)
            task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while not self._stopping.is_set():
            self._woken.clear()
            pause = await self._run_step()
            if not self._stopping.is_set() and pause > 0:
                await self._pause(pause)
            else:
                await asyncio.sleep(0)  # let others run even if the step never waits

    async def _run_step(self) -> float:
        """Run one step; return the seconds to pause after it."""
        try:
            try:
                asked = await self._step()
            except asyncio.CancelledError as error:
                # Raised by a task the step awaited, unless this loop's own task is cancelled.
                if self._task is not None and self._task.cancelling():
                    raise
                raise RuntimeError("a task awaited by the step was cancelled") from error
        except Exception as error:  # the outermost frame of a step
            self.failure_count += 1
            doubled = BACK_OFF_SECONDS * (1 << self._failures_in_a_row)
            pause = min(doubled, BACK_OFF_SECONDS_MAX)
            self._failures_in_a_row = min(self._failures_in_a_row + 1, 16)
            self._log_failure(error, pause)
            return pause
        self._failures_in_a_row = 0
        if self._lasting is not None:
            _log.info("loop step succeeds again", loop=self.name)
            self._lasting = None
        return self._period_seconds if asked is None else max(asked, self._rest_seconds)

    def _log_failure(self, error: Exception, pause: float) -> None:
        lasting = None
        if isinstance(error, OSError) and error.strerror is not None:
            lasting = type(error), error.strerror
            if lasting == self._lasting:
                return
        self._lasting = lasting
        _log.error(
            "loop step failed",
            loop=self.name,
            failures=self.failure_count,
            pause=pause,
            reason=str(error),
            exc_info=lasting is None,
        )

    async def _pause(self, seconds: float) -> None:
        rest = min(self._rest_seconds, seconds)
        if rest > 0:
            await _wait_for(self._stopping, rest)
        if seconds > rest:
            await _wait_for(self._woken, seconds - rest)


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    """Wait until *event* is set or *seconds* have passed."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass  # the pause is over
