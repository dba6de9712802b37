"""The topics that can be exported: those of live brokers, and those of brokers that are away.

A name server forgets an absent broker together with its topics. A list without them would look
complete, and a reader of all topics of a pattern would miss messages without an error. So the
topics are added that the read model knows on such a broker; their plans name it as incomplete. For
the same reason there is no list while the read model's database is away.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from eruca import AsyncClient
from eruca_query.exports.topic_brokers import asking_name_servers


class FindOthersTopics(Protocol):
    """Finds topics with messages on brokers besides the known ones."""

    async def __call__(self, present: Collection[str]) -> set[str]:
        """Return them without system topics.

        Raises:
            DatabaseUnavailableError: Nobody knows them now.
        """
        ...


async def exportable_topics(client: AsyncClient, find_others: FindOthersTopics) -> list[str]:
    """Return the topics, sorted; without system topics, which each broker has for itself.

    Raises:
        UnavailableError: No name server answers.
        NameServerSettlingError: Some brokers may not have registered their topics yet.
        NoLiveBrokerError: No name server knows a live broker.
        DatabaseUnavailableError: Nobody knows the topics of brokers that are away.
    """
    with asking_name_servers():
        before = {group.broker_name for group in await client.admin.brokers()}
        topics = await client.admin.list_topics()
        after = {group.broker_name for group in await client.admin.brokers()}
    # A broker that left or came meanwhile may not be in the list of topics.
    return sorted({*topics, *await find_others(before & after)})
