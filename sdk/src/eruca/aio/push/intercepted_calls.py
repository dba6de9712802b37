"""The handlers of a push consumer, called inside the interceptors' contexts."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from eruca.aio.intercepting.blocks import Blocks
from eruca.aio.push.calling import SUCCEEDED, Calls, Outcome
from eruca.aio.push.held_queue import HeldQueue
from eruca.core.call_statistics import ClientStatistics
from eruca.core.consuming.consume_context import ConsumeContext
from eruca.core.consuming.handler_table import Registration
from eruca.core.consuming.push_settings import PushSettings
from eruca.core.interceptors import HandleCall, HandleOutcome, Interceptor, overriding
from eruca.core.messages.received_message import ReceivedMessage


def calls_of(
    settings: PushSettings, interceptors: Sequence[Interceptor], statistics: ClientStatistics
) -> Calls:
    """Return the calls of a consumer's handlers, inside the contexts of its interceptors."""
    if surrounding := overriding(interceptors, "handling"):
        return InterceptedCalls(settings, statistics, surrounding)
    return Calls(settings, statistics)


class InterceptedCalls(Calls):
    """Call the handlers of one consumer inside the interceptors' contexts."""

    def __init__(
        self,
        settings: PushSettings,
        statistics: ClientStatistics,
        interceptors: Sequence[Interceptor],
    ) -> None:
        super().__init__(settings, statistics)
        self._methods = [interceptor.handling for interceptor in interceptors]

    def call(
        self,
        registration: Registration,
        messages: Sequence[ReceivedMessage],
        context: ConsumeContext | None,
    ) -> Outcome:
        """Call a plain function, in a thread."""
        call = HandleCall(messages, self._group, takes_list=self._takes_list)
        with Blocks(self._methods, call):
            begun_at = time.monotonic()
            outcome = super().call(registration, messages, context)
            _conclude(call, outcome)
            if outcome.error is None and time.monotonic() - begun_at >= self._seconds:
                # RocketMQ's rule: a slow success does not count, because it came too late.
                _conclude(call, self.timed_out())
        return outcome

    async def call_async(
        self,
        registration: Registration,
        messages: Sequence[ReceivedMessage],
        context: ConsumeContext | None,
    ) -> Outcome:
        """Call an async function within the time limit."""
        call = HandleCall(messages, self._group, takes_list=self._takes_list)
        with Blocks(self._methods, call):
            try:
                outcome = await super().call_async(registration, messages, context)
            except BaseException as error:
                call.error = error  # it was cancelled, or ends the program: it has no outcome
                raise
            _conclude(call, outcome)
        return outcome

    async def call_each(
        self,
        registration: Registration,
        messages: deque[ReceivedMessage],
        held: HeldQueue,
        *,
        ends_at: float,
        settle: Callable[[], None],
    ) -> tuple[ReceivedMessage, Outcome] | None:
        """Call an async function with one message after the other, each in contexts of its own."""
        while messages and time.monotonic() < ends_at:
            if held.is_draining or held.is_dropped or held.is_paused:
                break
            message = messages.popleft()
            outcome = await self.call_async(registration, [message], None)
            if outcome is not SUCCEEDED:
                return message, outcome
            held.finished.append(message)
            settle()
        return None


def _conclude(call: HandleCall, outcome: Outcome) -> None:
    call.outcome = outcome.kind
    call.error = outcome.raised
    call.reason = None if outcome.kind is HandleOutcome.SUCCESS else outcome.error
