"""uvicorn's flow control, with one more reason not to read: the client is too far ahead."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl


class ReadingFlow(FlowControl):
    """Reads while nobody has paused it and it is not held.

    uvicorn resumes reading with each answer, for the bodies that it paused for.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_held = False

    def hold(self) -> None:
        """Do not read until released."""
        self._is_held = True
        self.pause_reading()

    def release(self) -> None:
        """Read again."""
        self._is_held = False
        self.resume_reading()

    def resume_reading(self) -> None:
        """Read again, unless held."""
        if not self._is_held:
            super().resume_reading()
