"""Background work that does not die: a step, repeated, with somebody watching.

A step that fails is logged and counted and tried again, at growing intervals; the loop itself ends
only by ``stop``. An error of the system, such as a full disk, is logged in one line, once for as
long as it lasts: it is no fault of the program, and a traceback at each try helps nobody.

This and the application's request handler are the only places that catch every exception: both are
the outermost frame of what they run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

BACK_OFF_SECONDS: Final = 0.5  # after the first failure in a row; doubled by each further one
BACK_OFF_SECONDS_MAX: Final = 30.0
STOP_SECONDS: Final = 5.0  # how long a step may go on after ``stop``

_log = structlog.get_logger()


class BackgroundLoop:
    """Runs *step* every *period_seconds*, first at once.

    With a period of 0 a step follows the last one immediately, and must wait by itself. A step that
    knows when there is something to do returns how many seconds to pause instead of the period.

    Args:
        name: Of the loop, for the log.
        step: What is repeated.
        period_seconds: From the end of a step to the next one, unless the step says otherwise.
        rest_seconds: No wake shortens a pause below this: so many events cost one step.
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
        self._lasting: tuple[type[OSError], str] | None = None  # logged, and not over yet
        self._woken = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, on the running event loop."""
        assert self._task is None, f"loop {self.name} was started twice"
        self._task = asyncio.create_task(self._run(), name=self.name)

    def wake(self) -> None:
        """Run the next step now instead of after the pause, once the loop has had its rest.

        A wake during a step is kept: it ends the pause that follows.
        """
        self._woken.set()

    async def stop(self, *, within_seconds: float = STOP_SECONDS) -> None:
        """End the loop and wait for it; a step that takes longer than that is cancelled."""
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
                await asyncio.sleep(0)  # a step may end without waiting; others have their turn

    async def _run_step(self) -> float:
        """Run one step and return how long to pause after it."""
        try:
            try:
                asked = await self._step()
            except asyncio.CancelledError as error:
                # Of something the step waited for: to end the loop its own task is cancelled.
                if self._task is not None and self._task.cancelling():
                    raise
                raise RuntimeError("what the step waited for was cancelled") from error
        except Exception as error:
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
    """Wait until *event* is set, or *seconds* are over."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass  # the pause is over
