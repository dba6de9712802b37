"""Ordinary requests under way: end those that wait, once their admission no longer holds.

A request may wait for news for half a minute, and an export may last for hours. If its credentials
expire meanwhile, or the rules change, it is decided again. If it is refused then, it ends as if its
client had left. It gets the refusal instead of an answer; an answer that has begun is cut.

A request that only works, and does not wait, runs to its end: it was allowed when its body was
whole.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

from eruca.contract.errors import ErucaError
from eruca_chassis.admission.gate import Access, Asked, Connection, Quota
from eruca_chassis.asgi import Message, Receive, Send, size_said

_LEFT: Final[Message] = {"type": "http.disconnect"}


class UnderWay:
    """One admitted request.

    Args:
        access: The access of its caller; an attribute.
        asked: Its head.
    """

    def __init__(self, access: Access, asked: Asked) -> None:
        self.access = access
        self._asked = asked
        self._quota: Quota | None = None  # that counts it
        self._is_announced = size_said(asked.headers.get(b"content-length")) is not None
        self._refusal: asyncio.Future[ErucaError] = asyncio.get_running_loop().create_future()
        self._is_ended = False  # whether it was ended because of the refusal
        self._has_begun = False  # whether its answer has begun

    @property
    def error(self) -> ErucaError | None:
        """The refusal to answer with; None: it has an answer of its own."""
        return self._refusal.result() if self._is_ended and not self._has_begun else None

    def begin(self, connection: Connection | None) -> None:
        """Count the request by its caller's quota.

        Raises:
            QuotaExceededError: The quota does not let it go on.
        """
        quota = self.access.quota
        if quota is not None:
            size = size_said(self._asked.headers.get(b"content-length")) or 0
            quota.begin(monotonic(), size, connection)
            self._quota = quota

    def end(self, status: int) -> None:
        """End: the request has been answered with *status*."""
        self.access.answered(status)
        if self._quota is not None:
            self._quota.end()

    def recheck(self, now: float) -> None:
        """Decide again if the admission no longer holds at a monotonic time."""
        if not self._refusal.done():
            try:
                self.access.recheck(self._asked, now)
            except ErucaError as error:
                self._refusal.set_result(error)

    def receiving(self, receive: Receive) -> Receive:
        """Wrap *receive*: from the body's end on, a refusal looks as if the client had left."""
        is_whole = False

        async def receive_or_end() -> Message:
            nonlocal is_whole
            if not is_whole:
                message = await receive()
                is_whole = not message.get("more_body", False)
                if self._quota is not None and not self._is_announced:
                    self._quota.received(monotonic(), len(message.get("body", b"")))
                if is_whole and self._refusal.done():
                    self._is_ended = True  # nothing may be done with the body
                    return _LEFT
                return message
            received = asyncio.ensure_future(receive())
            try:
                await asyncio.wait((received, self._refusal), return_when=asyncio.FIRST_COMPLETED)
                if received.done():
                    return received.result()
            finally:
                received.cancel()
            self._is_ended = True
            return _LEFT

        return receive_or_end

    def sending(self, send: Send) -> Send:
        """Wrap *send*: what an ended request answers is dropped, unless it has begun."""

        async def send_unless_ended(message: Message) -> None:
            if self._is_ended and not self._has_begun:
                return
            self._has_begun = True
            if self._quota is not None and (body := message.get("body")):
                self._quota.sent(monotonic(), len(body))
            await send(message)

        return send_unless_ended
