"""Handle one delivery: extend its lease while a block of code runs, then acknowledge it.

Generated from ``eruca.aio.handling`` by ``sdk/tools/generate_sync.py``; change that one.
See :mod:`eruca.sync.portal` for its design and its rules for threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from eruca.aio.handling import AsyncHandling
from eruca.sync.portal import Portal

if TYPE_CHECKING:
    from types import TracebackType

    from eruca.core.consuming.delivery import Delivery
    from eruca.core.messages.received_message import ReceivedMessage


class Handling:
    """One delivery being handled; made by :meth:`eruca.SimpleConsumer.handling`."""

    def __init__(self, portal: Portal, twin: AsyncHandling) -> None:
        self._portal = portal
        self._twin = twin

    @property
    def delivery(self) -> Delivery:
        """The delivery to handle."""
        return self._twin.delivery

    @property
    def message(self) -> ReceivedMessage:
        """Its message."""
        return self._twin.message

    @property
    def is_lost(self) -> bool:
        """True if the lease may have expired, so another client may have the message."""
        return self._twin.is_lost

    def ack(self) -> None:
        """Acknowledge the message before the block ends; raises as the consumer's ``ack`` does."""
        self._portal.call(self._twin.ack)

    def nack(
        self,
        *,
        delay_seconds: float | None = None,
        reason: str = "failed",
        error: str | None = None,
    ) -> None:
        """Reject the message before the block ends; raises as the consumer's ``nack`` does."""
        self._portal.call(self._twin.nack, delay_seconds=delay_seconds, reason=reason, error=error)

    def __enter__(self) -> Self:
        self._portal.call(self._twin.open_block)
        self._twin.enter_block()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._twin.leave_block(error)
        self._portal.leave(self._twin.conclude_block, error)
