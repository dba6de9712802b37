"""Handle one delivery: extend its lease while a block of code runs, then acknowledge it.

While the block runs, its lease is extended again and again, each time at half of the lease. So the
block may take as long as it needs, and after a crash the message is redelivered soon. If the block
succeeds, the message is acknowledged. If it raises, the message is rejected and redelivered. The
block may also acknowledge or reject the message itself.

If the broker is not reached before the lease expires, ``is_lost`` becomes true. Another client may
have the message then, and the acknowledgement at the end raises.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from eruca.contract.errors import ErucaError, ExpiredHandleError, StaleHandleError
from eruca.core.call_statistics import Sums
from eruca.core.checked_arguments import checked_calls
from eruca.core.failure_text import text_of_error

if TYPE_CHECKING:
    from eruca.core.consuming.delivery import Delivery
    from eruca.core.messages.received_message import ReceivedMessage

KEEP_SECONDS_MAX: Final = (
    3 * 3_600.0
)  # as RocketMQ's proxy: a hanging handler loses its lease some day
_AGAIN_PART: Final = 0.1  # of the lease: pause before a failed extension is retried

_logger = logging.getLogger(__name__)


class Finisher(Protocol):
    """The consumer's operations that a handling needs."""

    async def ack(self, deliveries: Delivery, /) -> None:
        """Acknowledge the message."""
        ...

    async def nack(
        self,
        deliveries: Delivery,
        /,
        *,
        delay_seconds: float | None,
        reason: str,
        error: str | None,
    ) -> object:
        """Reject the message."""
        ...

    async def extend(self, deliveries: Delivery, /) -> object:
        """Extend the lease."""
        ...


@checked_calls()
class AsyncHandling:
    """One delivery being handled; made by :meth:`eruca.AsyncSimpleConsumer.handling`."""

    def __init__(
        self,
        consumer: Finisher,
        delivery: Delivery,
        account: Callable[[Delivery, Sums], None],
    ) -> None:
        self._consumer = consumer
        self._delivery = delivery
        self._account = account  # adds the handling to the statistics
        self._kept_until = delivery.kept_until
        self._is_lost = False
        self._is_finished = False
        self._begun_at = 0.0
        self.is_acknowledged = False
        self.is_rejected = False
        self._keeper: asyncio.Task[None] | None = None

    @property
    def delivery(self) -> Delivery:
        """The delivery to handle."""
        return self._delivery

    @property
    def message(self) -> ReceivedMessage:
        """Its message."""
        return self._delivery.message

    @property
    def is_lost(self) -> bool:
        """True if the lease may have expired, so another client may have the message."""
        return self._is_lost or time.monotonic() >= self._kept_until

    async def ack(self) -> None:
        """Acknowledge the message before the block ends; raises as the consumer's ``ack`` does."""
        await self._finish(lambda: self._consumer.ack(self._delivery))
        self.is_acknowledged = True

    async def nack(
        self,
        *,
        delay_seconds: float | None = None,
        reason: str = "failed",
        error: str | None = None,
    ) -> None:
        """Reject the message before the block ends; raises as the consumer's ``nack`` does."""
        await self._finish(
            lambda: self._consumer.nack(
                self._delivery, delay_seconds=delay_seconds, reason=reason, error=error
            )
        )
        self.is_rejected = True

    async def open_block(self) -> None:
        """Start to extend the lease."""
        self._begun_at = time.monotonic()
        self._keeper = asyncio.create_task(self._keep(), name="eruca keeps a delivery")

    def enter_block(self) -> None:
        """Enter the interceptors' contexts, in the thread and task of the block."""

    def leave_block(self, error: BaseException | None) -> None:
        """Leave them, likewise; *error* is the block's."""

    async def __aenter__(self) -> Self:
        await self.open_block()
        self.enter_block()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave_block(error)
        await self.conclude_block(error)

    async def conclude_block(self, error: BaseException | None) -> None:
        """Acknowledge the message, or reject it if the block raised *error*."""
        if error is None or isinstance(error, Exception):  # else the program ends
            failed = error is not None or self.is_rejected
            seconds = time.monotonic() - self._begun_at
            self._account(self._delivery, Sums(1, 1, int(failed), seconds))
        if self._is_finished:
            await self._stop_keeping()
        elif error is None:
            await self.ack()
        else:
            try:
                # A cancelled program has not failed: others may retry the message at once.
                if isinstance(error, Exception):
                    await self.nack(error=text_of_error(error))
                else:
                    await self.nack(delay_seconds=0, reason="stopped")
            except ErucaError as failure:
                _logger.warning(
                    "%r was not rejected and will be redelivered: %s", self._delivery, failure
                )

    async def _finish(self, finish: Callable[[], Awaitable[object]]) -> None:
        await self._stop_keeping()
        await finish()
        self._is_finished = True

    async def _stop_keeping(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            # do not await the task itself: its cancellation would hide one of ours
            await asyncio.wait((keeper,))
            if not keeper.cancelled():
                keeper.result()  # a defect; raise it

    async def _keep(self) -> None:
        seconds = self._delivery.invisible_seconds
        end = time.monotonic() + KEEP_SECONDS_MAX
        pause = self._kept_until - time.monotonic() - seconds / 2
        while time.monotonic() + pause < end:
            await asyncio.sleep(max(pause, 0))
            sent_at = time.monotonic()
            try:
                await self._consumer.extend(self._delivery)
            except (StaleHandleError, ExpiredHandleError) as error:
                self._is_lost = True
                _logger.warning("the lease of %r could not be extended: %s", self._delivery, error)
                return
            except ErucaError as error:
                pause = seconds * _AGAIN_PART
                _logger.info(
                    "extending the lease of %r failed and will be retried: %s",
                    self._delivery,
                    error,
                )
            else:
                self._kept_until = sent_at + seconds
                pause = seconds / 2
