"""The messages: found by the query service, and scheduled ones at the brokers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from eruca import HeldScheduled
from eruca.contract.errors import ErucaError
from eruca.contract.queries import MessageCounts, MessageFound, MessagePage, Timeline
from eruca_console.cluster.cache import Answered
from eruca_console.cluster.questions import Gathered, Questions

UNFINISHED_COUNT_MAX: Final = 10  # each costs a request
COUNTS_LIFE_SECONDS: Final = 5.0  # counting costs more than finding; its page has its time


class MessageQuestions(Questions):
    """Questions about messages."""

    async def unfinished(self, group: str, topic: str) -> Answered[MessagePage]:
        """Return the newest messages that a group has not finished, by the query service."""
        return await self.cache.get(
            ("unfinished", group, topic),
            lambda: self.client.query.find(
                topic, group=group, group_state="not_yet", limit=UNFINISHED_COUNT_MAX
            ),
        )

    async def message(self, message_id: str) -> Answered[MessageFound]:
        """Return a message with its body; raises as ``query.message``."""
        return await self.cache.get(
            ("message", message_id), lambda: self.client.query.message(message_id)
        )

    async def messages(
        self,
        topic: str,
        *,
        key: str | None,
        tag: str | None,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        cursor: str | None,
    ) -> Answered[MessagePage]:
        """Return a page of a topic's messages, newest first; raises as ``query.find``."""
        return await self.cache.get(
            ("messages", topic, key, tag, since, until, limit, cursor),
            lambda: self.client.query.find(
                topic, key=key, tag=tag, since=since, until=until, limit=limit, cursor=cursor
            ),
        )

    async def counts(
        self, topic: str, since: datetime, until: datetime, columns: int
    ) -> Answered[MessageCounts]:
        """Return how many of a topic's messages were stored when; raises as ``query.counts``."""
        return await self.cache.get(
            ("counts", topic, since, until, columns),
            lambda: self.client.query.counts(topic, since=since, until=until, buckets=columns),
            life_seconds=COUNTS_LIFE_SECONDS,
        )

    async def query_url(self) -> str:
        """Return the URL of a query service, for commands to copy."""
        try:
            urls = (await self.cache.get("query urls", self.client.query.urls)).value
        except ErucaError:
            urls = []
        return urls[0] if urls else "http://QUERY:10931"

    async def timeline(self, message_id: str) -> Answered[Timeline]:
        """Return a message's history; raises as ``query.timeline``."""
        return await self.cache.get(
            ("timeline", message_id), lambda: self.client.query.timeline(message_id)
        )

    async def scheduled(
        self, topic: str | None, maximum: int
    ) -> Answered[Gathered[Sequence[HeldScheduled]]]:
        """Return the scheduled messages that are delivered first."""

        async def ask(silent: dict[str, ErucaError]) -> Sequence[HeldScheduled]:
            found: list[HeldScheduled] = []
            async for held in self.client.admin.scheduled(topic, unanswered=silent):
                found.append(held)
                if len(found) == maximum:
                    break
            return found

        return await self.gathered(("scheduled", topic, maximum), ask)
