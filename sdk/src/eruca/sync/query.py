"""Client of the query service: messages by id, key, tag and time, and their history.

Generated from ``eruca.aio.query`` by ``sdk/tools/generate_sync.py``; change that one.
See :mod:`eruca.sync.portal` for its design and its rules for threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from eruca.aio.query import AsyncQuery
from eruca.contract.limits import LIST_LIMIT_DEFAULT
from eruca.sync.portal import Portal, read_here

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from eruca.contract.queries import (
        MessageCounts,
        MessageFound,
        MessagePage,
        QueryStatus,
        Timeline,
    )


class Query:
    """Requests to a cluster's query services; made by :attr:`eruca.Client.query`."""

    def __init__(self, portal: Portal, twin: AsyncQuery) -> None:
        self._portal = portal
        self._twin = twin

    def message(self, message_id: str, *, topic: str | None = None) -> MessageFound:
        """Return the message with an offset id or a unique id.

        Args:
            message_id: Either id.
            topic: The message's topic, because messages in several topics may share a unique id.
                None: the first that consumers saw; ``also_stored`` lists the others.

        Raises:
            MessageNotFoundError: No message has this id.
            SearchIncompleteError: No message was found, and a part of the data was not searched.
        """
        return self._portal.call(self._twin.message, message_id, topic=topic)

    def timeline(self, message_id: str) -> Timeline:
        """Return a message's history, and its state in each group; raises as ``message``."""
        return self._portal.call(self._twin.timeline, message_id)

    def find(
        self,
        topic: str,
        *,
        key: str | None = None,
        tag: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        group: str | None = None,
        group_state: Literal["past", "not_yet"] = "not_yet",
        bodies: bool = False,
        limit: int = LIST_LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> MessagePage:
        """Return a page of a topic's messages, newest first.

        Args:
            topic: The topic.
            key: Only messages with this key; the comparison is exact.
            tag: Only messages with this tag.
            since: Only messages stored at this time or later.
            until: Only messages stored before this time.
            group: Only messages that this group has read, or has not read.
            group_state: Which of the two; "past" requires *group*.
            bodies: Whether to include bodies and properties; limits the page to 100 messages.
            limit: Maximum number of messages.
            cursor: ``next_cursor`` of the previous page.
        """
        return self._portal.call(
            self._twin.find,
            topic,
            key=key,
            tag=tag,
            since=since,
            until=until,
            group=group,
            group_state=group_state,
            bodies=bodies,
            limit=limit,
            cursor=cursor,
        )

    def counts(
        self,
        topic: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        buckets: int = 60,
    ) -> MessageCounts:
        """Return how many messages were stored in each stretch of time, oldest first.

        Args:
            topic: The topic.
            since: Beginning of the first stretch. Default: an hour before *until*.
            until: End of the last one. Default: now.
            buckets: Maximum number of stretches, from 1 to 500.
        """
        return self._portal.call(
            self._twin.counts, topic, since=since, until=until, buckets=buckets
        )

    def status(self) -> QueryStatus:
        """Return how far the query services have read each broker's log."""
        return self._portal.call(self._twin.status)

    def rebuild(self, brokers: Iterable[str] | None = None) -> list[str]:
        """Rebuild the read model from the logs of some brokers, or of all; return their names.

        Until it is done, the current read model answers queries; ``status`` shows the progress.
        """
        return self._portal.call(self._twin.rebuild, read_here(brokers))

    def forget(self, broker_name: str) -> None:
        """Drop all data from the log of a broker that was removed for good.

        From then on, no answer is incomplete because of that broker. If a broker returns under this
        name, its log is read from the beginning. To drop the transaction checkers' data, call
        ``admin.transactions.forget``.

        Raises:
            BrokerNotFoundError: Its log was never followed, or has already been dropped.
            ConflictError: A name server still knows the broker: stop it first.
        """
        self._portal.call(self._twin.forget, broker_name)

    def urls(self) -> list[str]:
        """Return the URLs of the query services that have not failed; the first is in use.

        Raises:
            NoRouteError: No query service is known.
        """
        return self._portal.call(self._twin.urls)
