"""A producer with interceptors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from eruca.aio.intercepting.blocks import Blocks
from eruca.aio.producer import AsyncProducer
from eruca.core.checked_arguments import check_argument
from eruca.core.interceptors import Interceptor, SendCall
from eruca.core.messages.message import Message
from eruca.core.producing.send_result import SendResult, SendResults

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext
    from eruca.core.producing.producer_settings import ProducerSettings

_logger = logging.getLogger(__name__)


class InterceptedProducer(AsyncProducer):
    """Sends messages inside the interceptors' contexts."""

    def __init__(
        self,
        context: ClientContext,
        settings: ProducerSettings,
        interceptors: Sequence[Interceptor],
    ) -> None:
        super().__init__(context, settings)
        self._methods = [interceptor.sending for interceptor in interceptors]

    async def send(self, message: Message, **options: Any) -> SendResult:  # noqa: ANN401
        """Store a message, as :meth:`AsyncProducer.send` does."""
        check_argument("message", message, Message)
        call = SendCall((message,), self.group)
        with Blocks(self._methods, call):
            try:
                result = await super().send(to_send(call, (message,))[0], **options)
            except BaseException as error:
                call.error = error
                raise
            call.results = (result,)
        return result

    async def submit(self, message: Message, **options: Any) -> asyncio.Future[SendResult]:  # noqa: ANN401
        """Queue a message for sending, as :meth:`AsyncProducer.submit` does."""
        check_argument("message", message, Message)
        call = SendCall((message,), self.group)
        blocks = Blocks(self._methods, call)
        try:
            future = await super().submit(to_send(call, (message,))[0], **options)
        except BaseException as error:
            call.error = error
            blocks.leave()
            raise
        future.add_done_callback(lambda done: _conclude(call, blocks, done))
        return future

    async def send_many(self, messages: Iterable[Message], **options: Any) -> SendResults:  # noqa: ANN401
        """Store messages, as :meth:`AsyncProducer.send_many` does."""
        check_argument("messages", messages, Iterable)
        given = list(messages)
        for index, message in enumerate(given):
            check_argument(f"messages[{index}]", message, Message)
        call = SendCall(given, self.group)
        with Blocks(self._methods, call):
            try:
                results = await super().send_many(to_send(call, given), **options)
            except BaseException as error:
                call.error = error
                raise
            call.results = results
        return results


def to_send(call: SendCall, given: Sequence[Message]) -> Sequence[Message]:
    """Return the messages to send: those of the interceptors, if they stand for the given ones."""
    chosen = call.messages
    if chosen is given:
        return given
    if len(chosen) == len(given) and {type(one) for one in chosen} <= {Message}:
        return chosen
    _logger.error(
        "interceptors replaced %d messages by %d, or by other objects: the given ones are sent",
        len(given),
        len(chosen),
    )
    call.messages = given
    return given


def _conclude(call: SendCall, blocks: Blocks, done: asyncio.Future[SendResult]) -> None:
    if done.cancelled():
        call.error = asyncio.CancelledError()
    elif (error := done.exception()) is not None:
        call.error = error
    else:
        call.results = (done.result(),)
    blocks.leave()
