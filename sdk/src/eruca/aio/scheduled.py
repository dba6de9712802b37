"""Scheduled messages over all brokers: list them and cancel one."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from eruca.aio.cluster.masters import Masters, answered, on_those_that_know
from eruca.aio.cluster.merging import merged
from eruca.aio.http.transport import path_segment, target_of
from eruca.contract.errors import ErucaError, ScheduledNotFoundError, ValidationError
from eruca.contract.limits import LIST_LIMIT_MAX
from eruca.contract.recall_handles import (
    RECALL_HANDLE_SIZE_MAX,
    MalformedRecallHandleError,
    RecallHandle,
    decode_recall_handle,
)
from eruca.contract.retries import ScheduledList, ScheduledMessage

_PATH = "/v1/scheduled"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HeldScheduled:
    """A scheduled message and its broker."""

    broker_name: str
    message: ScheduledMessage


class Scheduled:
    """The scheduled messages at the brokers of one cluster."""

    def __init__(self, masters: Masters) -> None:
        self._masters = masters

    async def waiting(
        self, topic: str | None, unanswered: dict[str, ErucaError] | None = None
    ) -> AsyncIterator[HeldScheduled]:
        """Iterate over scheduled messages in the order of their delivery times.

        *unanswered* collects the brokers that do not answer; if it is None, such a broker raises.
        """
        streams = [
            answered(name, self._of_broker(name, url, topic), unanswered)
            for name, url in sorted((await self._masters.all()).items())
        ]
        async for held in merged(streams, key=lambda held: held.message.deliver_at):
            yield held

    async def recall(self, recall_handle: str) -> RecallHandle:
        """Cancel the message of a handle at the handle's broker; return the parsed handle."""
        try:
            handle = decode_recall_handle(recall_handle)
        except MalformedRecallHandleError as error:
            raise await self._refusal(recall_handle, str(error)) from None
        url = await self._masters.of_broker(handle.broker_name)
        await self._masters.send("DELETE", url, f"{_PATH}/{path_segment(recall_handle)}")
        return handle

    async def _refusal(self, text: str, reason: str) -> ErucaError:
        """Return the error for a text that is not a handle; if it is an id, list its messages."""
        messages: list[Mapping[str, str]] = []

        async def ask(url: str) -> None:
            try:
                await self._masters.send("DELETE", url, f"{_PATH}/{path_segment(text)}")
            except ValidationError as error:
                messages.extend(error.errors)

        unknown = ScheduledNotFoundError(
            f"{reason}, and no broker has a scheduled message with this id"
        )
        if not text or len(text) > RECALL_HANDLE_SIZE_MAX:
            return unknown
        await on_those_that_know(await self._masters.all(), ask, unknown)
        waiting = "".join(f"; {message['detail']}" for message in messages)
        return ValidationError(
            f"{reason}; a message id contains neither the topic nor the broker{waiting}",
            errors=messages,
            fix="give the recall_handle from the send's result, or from eruca scheduled list",
        )

    async def _of_broker(
        self, broker_name: str, url: str, topic: str | None
    ) -> AsyncIterator[HeldScheduled]:
        cursor: str | None = None
        while True:
            target = target_of(_PATH, topic=topic, cursor=cursor, limit=LIST_LIMIT_MAX)
            page = await self._masters.call(ScheduledList, "GET", url, target)
            for damaged in page.damaged:
                _logger.warning("a scheduled message at %s is damaged: %s", url, damaged.reason)
            for message in page.scheduled:
                yield HeldScheduled(broker_name, message)
            cursor = page.next_cursor
            if cursor is None:
                return
