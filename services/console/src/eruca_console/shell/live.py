"""Live updates: one stream of server-sent events for each open page.

A stream renders its page's block ``live`` again and sends it if it has changed. The number of
streams is bounded, in total and for each caller. A page without a stream still works: it says that
it does not update itself. Updates come less often if they would cost too much
(:mod:`eruca_console.core.pace`), and not all at the same time.

Source: HTML Standard, "Server-sent events".
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic, process_time
from typing import Final

from eruca.contract.errors import ErucaError, OverloadedError
from eruca_console.core.pace import Pace, Spent

MEDIA_TYPE: Final = "text/event-stream"
_SILENCE_STEPS: Final = 10  # after so many equal renderings a comment shows that the stream lives


class LiveStreams:
    """All open streams.

    Args:
        maximum: Streams at the same time.
        per_caller: … of one caller.
        period_seconds: Time between two renderings, at least.
        asked_seconds: Returns the time in which this process has asked the cluster so far.
    """

    def __init__(
        self,
        *,
        maximum: int,
        per_caller: int,
        period_seconds: float,
        asked_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._maximum = maximum
        self._per_caller = per_caller
        self._pace = Pace(period_seconds)
        self._asked_seconds = asked_seconds
        self._open: Counter[str] = Counter()
        self._stopping = asyncio.Event()

    @property
    def period_seconds(self) -> float:
        """The time between two renderings of a page now."""
        return self._pace.period_seconds(self.count)

    @property
    def count(self) -> int:
        """The number of open streams."""
        return self._open.total()

    def stop(self) -> None:
        """End all streams."""
        self._stopping.set()

    def begin(self, caller: str) -> None:
        """Take a place for a stream of *caller*; :meth:`stream` gives it back.

        Raises:
            OverloadedError: There are too many.
        """
        if self.count >= self._maximum or self._open[caller] >= self._per_caller:
            raise OverloadedError(
                "too many pages are kept up to date at the same time",
                fix="close some of them, or raise ERUCA_CONSOLE_STREAMS_MAX and "
                "ERUCA_CONSOLE_STREAMS_PER_CALLER_MAX",
                retry_after_seconds=10,
            )
        if not self.count:
            self._pace.restart()
        self._open[caller] += 1

    async def stream(
        self, caller: str, shown: str, render: Callable[[], Awaitable[str | None]]
    ) -> AsyncIterator[str]:
        """Yield events until the client leaves, the console stops or *render* returns None.

        Args:
            caller: As given to :meth:`begin`.
            shown: The digest of what the page shows already.
            render: Returns the block; None: the caller may not see the page any more.
        """
        number = equal = 0
        last = shown
        try:
            while not self._stopping.is_set():
                try:
                    text = await render()
                except ErucaError as error:  # the page would be an error's: it stays as it is
                    yield event("failed", error.detail)
                    text = last
                self._pace.updated(Spent(process_time(), self._asked_seconds(), monotonic()))
                if text is None:
                    yield event("ended", "the session is over")
                    return
                if text != last:
                    number, equal, last = number + 1, 0, text
                    yield event("live", text, number)
                else:
                    equal += 1
                    if equal % _SILENCE_STEPS == 0:
                        yield ": nothing new\n\n"
                await self._pause()
        finally:
            self._open[caller] -= 1
            if self._open[caller] <= 0:
                del self._open[caller]

    async def _pause(self) -> None:
        try:
            # Pages that were opened together would be rendered together for ever.
            async with asyncio.timeout(self.period_seconds * random.uniform(0.8, 1.2)):
                await self._stopping.wait()
        except TimeoutError:
            pass  # the period is over


def event(kind: str, text: str, number: int | None = None) -> str:
    """Return one event; each line of *text* is a line of its data."""
    identity = "" if number is None else f"id: {number}\n"
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"event: {kind}\n{identity}{lines}\n"
