"""Messages that wait for their delivery, over all brokers: looking at them and recalling one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from eruca.aio.cluster.masters import Masters, answered, on_those_that_know
from eruca.aio.cluster.merging import merged
from eruca.aio.http.transport import path_segment, target_of
from eruca.contract.errors import ErucaError, ScheduledNotFoundError
from eruca.contract.limits import LIST_LIMIT_MAX
from eruca.contract.retries import ScheduledList, ScheduledMessage

_PATH = "/v1/scheduled"


@dataclass(frozen=True, slots=True)
class HeldScheduled:
    """A message that waits, and the broker that has it."""

    broker_name: str
    message: ScheduledMessage


class Scheduled:
    """What waits at the brokers of one cluster."""

    def __init__(self, masters: Masters) -> None:
        self._masters = masters

    async def waiting(
        self, topic: str | None, unanswered: dict[str, ErucaError] | None = None
    ) -> AsyncIterator[HeldScheduled]:
        """Iterate over what waits, as it comes due.

        Brokers that do not answer are put into *unanswered*; where it is None, that is an error.
        """
        streams = [
            answered(name, self._of_broker(name, url, topic), unanswered)
            for name, url in sorted((await self._masters.all()).items())
        ]
        async for held in merged(streams, key=lambda held: held.message.deliver_at):
            yield held

    async def recall(self, message_id: str) -> list[str]:
        """Recall a message; return which brokers have done so."""

        async def recall(url: str) -> None:
            await self._masters.send("DELETE", url, f"{_PATH}/{path_segment(message_id)}")

        urls = await self._masters.all()
        unknown = ScheduledNotFoundError(
            f"no broker has been sent a message of id {message_id!r} to be delivered later",
            fix="give the unique id that sending told; see eruca scheduled list",
        )
        return sorted(await on_those_that_know(urls, recall, unknown))

    async def _of_broker(
        self, broker_name: str, url: str, topic: str | None
    ) -> AsyncIterator[HeldScheduled]:
        cursor: str | None = None
        while True:
            target = target_of(_PATH, topic=topic, cursor=cursor, limit=LIST_LIMIT_MAX)
            page = await self._masters.call(ScheduledList, "GET", url, target)
            for message in page.scheduled:
                yield HeldScheduled(broker_name, message)
            cursor = page.next_cursor
            if cursor is None:
                return
