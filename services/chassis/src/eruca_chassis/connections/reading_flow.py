"""uvicorn's flow control, with one more reason to stop reading: too many unanswered requests."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl


class ReadingFlow(FlowControl):
    """Reads unless reading is paused or held.

    uvicorn resumes reading with each answer, which must not override a hold.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_held = False

    def hold(self) -> None:
        """Stop reading until released."""
        self._is_held = True
        self.pause_reading()

    def release(self) -> None:
        """Resume reading."""
        self._is_held = False
        self.resume_reading()

    def resume_reading(self) -> None:
        """Resume reading, unless held."""
        if not self._is_held:
            super().resume_reading()
