"""A simple consumer with interceptors around what it receives and handles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from eruca.aio.handling import AsyncHandling
from eruca.aio.intercepting.blocks import Blocks
from eruca.aio.simple_consumer import AsyncSimpleConsumer
from eruca.core.call_statistics import Sums
from eruca.core.consuming.delivery import Delivery
from eruca.core.interceptors import (
    HandleCall,
    HandleOutcome,
    Interceptor,
    ReceiveCall,
    overriding,
)

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext
    from eruca.core.consuming.simple_settings import SimpleSettings


class InterceptedSimpleConsumer(AsyncSimpleConsumer):
    """Leases messages inside the interceptors' contexts."""

    def __init__(
        self,
        context: ClientContext,
        settings: SimpleSettings,
        interceptors: Sequence[Interceptor],
    ) -> None:
        super().__init__(context, settings)
        self._receiving = [one.receiving for one in overriding(interceptors, "receiving")]
        self._handling = [one.handling for one in overriding(interceptors, "handling")]

    async def receive(self, *args: Any, **options: Any) -> list[Delivery]:  # noqa: ANN401
        """Lease messages, as :meth:`AsyncSimpleConsumer.receive` does."""
        call = ReceiveCall(self.group)
        with Blocks(self._receiving, call):
            try:
                deliveries = await super().receive(*args, **options)
            except BaseException as error:
                call.error = error
                raise
            call.messages = [delivery.message for delivery in deliveries]
        return deliveries

    def handling(self, delivery: Delivery) -> AsyncHandling:
        """Return a context for handling a message, as :meth:`AsyncSimpleConsumer.handling` does."""
        handling = super().handling(delivery)
        if not self._handling:
            return handling
        return _InterceptedHandling(self, handling.delivery, self._account, self._handling)


class _InterceptedHandling(AsyncHandling):
    def __init__(
        self,
        consumer: InterceptedSimpleConsumer,
        delivery: Delivery,
        account: Callable[[Delivery, Sums], None],
        methods: Sequence[Any],
    ) -> None:
        super().__init__(consumer, delivery, account)
        self._methods = methods
        self._call = HandleCall((delivery.message,), consumer.group)
        self._blocks: Blocks | None = None

    def enter_block(self) -> None:
        self._blocks = Blocks(self._methods, self._call)

    def leave_block(self, error: BaseException | None) -> None:
        call = self._call
        if isinstance(error, Exception):
            call.outcome, call.error = HandleOutcome.EXCEPTION, error
        elif error is not None:
            call.error = error  # the program ends: the handling has no outcome
        elif self.is_rejected:
            call.outcome, call.reason = HandleOutcome.FAILED, "the block rejected the message"
        elif self.is_lost and not self.is_acknowledged:
            call.outcome, call.reason = HandleOutcome.TIME_OUT, "the lease may have expired"
        else:
            call.outcome = HandleOutcome.SUCCESS
        assert self._blocks is not None
        self._blocks.leave()
