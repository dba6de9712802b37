"""A pull consumer with interceptors around its polls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eruca.aio.intercepting.blocks import Blocks
from eruca.aio.pull_consumer import AsyncPullConsumer
from eruca.core.interceptors import Interceptor, ReceiveCall

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext
    from eruca.core.consuming.pull_settings import PullSettings


class InterceptedPullConsumer(AsyncPullConsumer):
    """Takes messages inside the interceptors' contexts."""

    def __init__(
        self,
        context: ClientContext,
        settings: PullSettings,
        interceptors: Sequence[Interceptor],
    ) -> None:
        super().__init__(context, settings)
        self._methods = [interceptor.receiving for interceptor in interceptors]

    async def _take_next(self, count_max: int, wait_seconds: float) -> None:
        call = ReceiveCall(self._settings.group)
        with Blocks(self._methods, call):
            try:
                await super()._take_next(count_max, wait_seconds)
            except BaseException as error:
                call.error = error
                raise
            call.messages = tuple(self._batch.unread)
