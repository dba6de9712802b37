"""Find the brokers that have, or had, messages of a topic, according to the read model's rows.

A name server forgets an absent broker, together with its topics; the rows do not.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from eruca.contract.fields import OFFSET_MAX
from eruca.contract.names import is_system_topic
from eruca.contract.queries import Missing
from eruca_postgres.database import Database
from eruca_query.core.found_messages import ms_not_before
from eruca_query.core.time_windows import windows
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.searching import message_sql
from eruca_query.searching.read_view import ReadView, ServingBuild, read_view


class TopicHolders:
    """Answers which brokers have messages of a topic.

    Args:
        database: The read model's.
        numbers: The numbers of names; shared with the projection.
    """

    def __init__(self, database: Database, numbers: NameNumbers) -> None:
        self._database = database
        self._numbers = numbers

    async def missing(
        self,
        topic: str,
        present: Collection[str],
        *,
        from_time: datetime | None,
        to_time: datetime | None,
    ) -> list[Missing]:
        """Return the brokers with messages of a topic in a span of time, except *present*.

        Args:
            topic: The topic.
            present: Brokers that are left out.
            from_time: Stored then or later.
            to_time: Stored before then.

        Raises:
            DatabaseUnavailableError: The database does not answer, so nobody knows them.
        """
        from_ms = 0 if from_time is None else max(ms_not_before(from_time), 0)
        to_ms = OFFSET_MAX if to_time is None else ms_not_before(to_time) - 1
        async with read_view(self._database, self._numbers) as view:
            others = [its for name, its in view.by_name.items() if name not in present]
            holders = [
                its.broker_name
                for its in others
                if await _has_messages(view, its, topic, from_ms=from_ms, to_ms=to_ms)
            ]
        detail = f"it has or had messages of topic {topic}, but no name server knows it with it now"
        return [
            Missing(broker_name=name, reason="broker_unreachable", detail=detail)
            for name in sorted(holders)
        ]

    async def others_topics(self, present: Collection[str]) -> set[str]:
        """Return the topics with messages on brokers other than *present*; no system topics.

        Raises:
            DatabaseUnavailableError: The database does not answer, so nobody knows them.
        """
        topics: set[str] = set()
        async with read_view(self._database, self._numbers) as view:
            others = [its for name, its in view.by_name.items() if name not in present]
            for its in others:
                topics |= await _topics_of(view, its)
        return topics


async def _topics_of(view: ReadView, broker: ServingBuild) -> set[str]:
    """Return a broker's topics; those whose messages were all deleted with their topic are not."""
    spans = await view.spans(broker_no=broker.broker_no)
    found: set[str] = set()
    for window in windows(spans, from_ms=0, to_ms=OFFSET_MAX, chunks_max=message_sql.CHUNKS_MAX):
        found |= set(await view.connection.scalars(message_sql.topics_of(window)))
    return {
        topic
        for topic in found
        if not is_system_topic(topic)
        and await _has_messages(view, broker, topic, from_ms=0, to_ms=OFFSET_MAX)
    }


async def _has_messages(
    view: ReadView, broker: ServingBuild, topic: str, *, from_ms: int, to_ms: int
) -> bool:
    topic_no = await view.topic_number(topic)
    if topic_no is None:
        return False
    end = (await view.ends_of_topic(topic_no)).get(broker.broker_no, 0)
    for window in windows(
        await view.spans(broker_no=broker.broker_no, from_offset=end),
        from_ms=from_ms,
        to_ms=to_ms,
        chunks_max=message_sql.CHUNKS_MAX,
    ):
        statement = message_sql.any_of_topic(window, topic_no=topic_no, from_offset=end)
        if await view.connection.scalar(statement):
            return True
    return False
