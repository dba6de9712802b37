"""The topics, their settings and their queues."""

from __future__ import annotations

from collections.abc import Mapping

from eruca import MessageQueue, QueueOffsets
from eruca.contract.errors import BrokerNotFoundError, ErucaError
from eruca.contract.limits import LIST_LIMIT_MAX
from eruca.contract.topics import TopicConfig
from eruca_console.cluster.cache import Answered
from eruca_console.cluster.outcomes import outcomes
from eruca_console.cluster.questions import Gathered, Questions


class TopicQuestions(Questions):
    """Questions about topics."""

    async def topics(self) -> Answered[Gathered[Mapping[str, Mapping[str, TopicConfig]]]]:
        """Return the settings of all topics: by topic, then by broker."""

        async def of_broker(url: str) -> Answered[list[TopicConfig]]:
            return await self.cache.get(("topics", url), lambda: self._topics_at(url))

        async def ask() -> Gathered[Mapping[str, Mapping[str, TopicConfig]]]:
            groups = (await self.brokers()).value
            urls = {group.broker_name: self.url_of(group) for group in groups}
            named = {url: name for name, url in urls.items() if url is not None}
            answers = await outcomes(named, of_broker)
            found: dict[str, dict[str, TopicConfig]] = {}
            errors: dict[str, ErucaError] = {
                name: BrokerNotFoundError(f"{name} has no registered master")
                for name, url in urls.items()
                if url is None
            }
            for url, answer in answers.items():
                if answer.error is not None:
                    errors[named[url]] = answer.error
                for config in answer.value or ():
                    found.setdefault(config.topic, {})[named[url]] = config
            errors |= await self.absent()
            return Gathered(found, errors, sorted(urls.keys() - errors.keys()))

        return await self.cache.get("topics", ask, is_costly=True)

    async def topic(self, topic: str) -> Answered[Gathered[Mapping[str, TopicConfig]]]:
        """Return the settings of a topic by broker; raises as ``admin.topic``."""
        return await self.gathered(
            ("topic", topic), lambda silent: self.client.admin.topic(topic, unanswered=silent)
        )

    async def queues(self, topic: str) -> Answered[Gathered[Mapping[MessageQueue, QueueOffsets]]]:
        """Return the offsets of a topic's queues; raises as ``admin.queues``."""
        return await self.gathered(
            ("queues", topic), lambda silent: self.client.admin.queues(topic, unanswered=silent)
        )

    async def _topics_at(self, url: str) -> list[TopicConfig]:
        found: list[TopicConfig] = []
        cursor: str | None = None
        while True:
            page = await self.client.context.broker_api.list_topics(
                url, cursor=cursor, limit=LIST_LIMIT_MAX, include_system=False
            )
            found += page.topics
            cursor = page.next_cursor
            if cursor is None:
                return found
