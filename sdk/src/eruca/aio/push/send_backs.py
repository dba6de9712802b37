"""Send messages to the retry topic, or make them dead letters.

After the broker's answer they are stored there, and finished here. A message that the broker did
not accept stays with the consumer.

The broker refuses a whole request if one of its messages is gone, or if they are too large
together. Then each message is sent by itself. A retry adds properties to a message. If a message's
own properties leave no room for them, it can never be retried. So it becomes a dead letter at once;
otherwise it would be handled again for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from eruca.aio.cluster.group_api import GroupApi
from eruca.aio.push.calling import Outcome
from eruca.aio.push.held_queue import HeldQueue
from eruca.contract.errors import (
    ErucaError,
    MemberNotFoundError,
    RecordNotFoundError,
    StaleLockError,
    TooLargeError,
    ValidationError,
)
from eruca.contract.retries import SendBack
from eruca.core.consuming.consume_context import ConsumeContext
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage

DEAD_LETTER_LEVEL: Final = -1  # RocketMQ's delay level for "never again"

_logger = logging.getLogger(__name__)


class SendBacks:
    """Sends messages back to their brokers."""

    def __init__(
        self,
        api: GroupApi,
        url_of: Callable[[MessageQueue], str],
        on_doubt: Callable[[str], None],
        retries_max: int | None,
    ) -> None:
        self._api = api
        self._url_of = url_of
        self._on_doubt = on_doubt
        self._retries_max = retries_max

    async def retry(
        self,
        held: HeldQueue,
        messages: Sequence[ReceivedMessage],
        outcome: Outcome,
        context: ConsumeContext | None,
    ) -> list[ReceivedMessage]:
        """Schedule *messages* for redelivery; return those whose redelivery was not confirmed."""
        level = None if context is None else context.delay_level
        seconds = None if context is None or level is not None else context.delay_seconds
        return await self._send(held, messages, outcome, level, seconds)

    async def bury(
        self, held: HeldQueue, messages: Sequence[ReceivedMessage], outcome: Outcome
    ) -> list[ReceivedMessage]:
        """Make *messages* dead letters; return those for which that was not confirmed."""
        return await self._send(held, messages, outcome, DEAD_LETTER_LEVEL, None)

    async def _send(
        self,
        held: HeldQueue,
        messages: Sequence[ReceivedMessage],
        outcome: Outcome,
        delay_level: int | None,
        delay_seconds: float | None,
    ) -> list[ReceivedMessage]:
        try:
            backs = self._forms(held, messages, outcome, delay_level, delay_seconds)
        except ValueError as fault:
            if delay_level is None and delay_seconds is None:
                raise  # the cause is not the handler's delay
            _logger.error("the group's policy decides on a retry instead: %s", fault)
            return await self._send(held, messages, outcome, None, None)
        try:
            await self._api.send_back(self._url_of(held.queue), backs)
        except (RecordNotFoundError, TooLargeError) as failure:
            if len(messages) == 1:
                return await self._send_otherwise(held, messages, outcome, delay_level, failure)
            unsent = []
            for message in messages:
                unsent += await self._send(held, [message], outcome, delay_level, delay_seconds)
            return unsent
        except ErucaError as failure:
            if isinstance(failure, ValidationError) and delay_seconds is not None:
                _logger.error("the group's policy decides on a retry instead: %s", failure)
                return await self._send(held, messages, outcome, None, None)
            if isinstance(failure, StaleLockError | MemberNotFoundError):
                self._on_doubt(held.queue.broker_name)
            _logger.warning(
                "%d messages of %s could not be sent back: %s", len(backs), held.queue, failure
            )
            return list(messages)
        return []

    async def _send_otherwise(
        self,
        held: HeldQueue,
        messages: Sequence[ReceivedMessage],
        outcome: Outcome,
        delay_level: int | None,
        failure: RecordNotFoundError | TooLargeError,
    ) -> list[ReceivedMessage]:
        """Process a single message that the broker cannot accept as requested."""
        if isinstance(failure, RecordNotFoundError):
            # Retention has deleted it, so it cannot be retried.
            _logger.error("%r is deleted and will not be retried: %s", messages[0], failure)
            return []
        if delay_level == DEAD_LETTER_LEVEL:
            _logger.error("%r cannot become a dead letter: %s", messages[0], failure)
            return list(messages)
        _logger.error("%r cannot be retried and is now a dead letter: %s", messages[0], failure)
        return await self.bury(held, messages, outcome)

    def _forms(
        self,
        held: HeldQueue,
        messages: Sequence[ReceivedMessage],
        outcome: Outcome,
        delay_level: int | None,
        delay_seconds: float | None,
    ) -> list[SendBack]:
        assert held.token is not None
        return [
            SendBack(
                topic=held.queue.topic,
                queue_id=held.queue.queue_id,
                queue_offset=message.queue_offset,
                token=held.token,
                delay_level=delay_level,
                delay_seconds=delay_seconds,
                reason=outcome.reason,
                error=outcome.error,
                retries_max=self._retries_max,
                attempts=None if message.damage else message.attempt,
            )
            for message in messages
        ]
