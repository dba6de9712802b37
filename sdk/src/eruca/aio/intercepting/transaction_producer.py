"""A transaction producer with interceptors around the sending of half messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eruca.aio.intercepting.blocks import Blocks
from eruca.aio.intercepting.producer import to_send
from eruca.aio.transaction_producer import AsyncTransactionProducer
from eruca.core.interceptors import Interceptor, SendCall
from eruca.core.messages.message import Message
from eruca.core.producing.transactions import HalfMessage

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext
    from eruca.aio.transaction_producer import Begin
    from eruca.core.producing.transaction_settings import TransactionSettings


class InterceptedTransactionProducer(AsyncTransactionProducer):
    """Stores half messages inside the interceptors' contexts."""

    def __init__(
        self,
        context: ClientContext,
        settings: TransactionSettings,
        interceptors: Sequence[Interceptor],
    ) -> None:
        super().__init__(context, settings)
        self._methods = [interceptor.sending for interceptor in interceptors]

    async def _begin(self, message: Message, begin: Begin) -> tuple[HalfMessage, str]:
        call = SendCall((message,), self.group, is_transaction=True)
        with Blocks(self._methods, call):
            try:
                return await super()._begin(to_send(call, (message,))[0], begin)
            except BaseException as error:
                call.error = error
                raise
