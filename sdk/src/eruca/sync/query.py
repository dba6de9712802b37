"""Questions to the query service: messages by id, key, tag and time, and what befell them.

Generated from ``eruca.aio.query`` by ``sdk/tools/generate_sync.py``; change that one.
How it works and which threads may do what is said in :mod:`eruca.sync.portal`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from eruca.aio.query import AsyncQuery
from eruca.contract.limits import LIST_LIMIT_DEFAULT
from eruca.sync.portal import Portal, read_here

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from eruca.contract.queries import MessageFound, MessagePage, QueryStatus, Timeline


class Query:
    """Asks the query services of a client's cluster; made by :attr:`eruca.Client.query`."""

    def __init__(self, portal: Portal, twin: AsyncQuery) -> None:
        self._portal = portal
        self._twin = twin

    def message(self, message_id: str, *, topic: str | None = None) -> MessageFound:
        """Return the message with an offset id or a unique id.

        Args:
            message_id: Either id.
            topic: Where it lies: a unique id may be that of messages in several topics. None: the
                first that consumers saw; ``also_stored`` names the others.

        Raises:
            MessageNotFoundError: There is none.
            SearchIncompleteError: None was found, and not everything could be searched.
        """
        return self._portal.call(self._twin.message, message_id, topic=topic)

    def timeline(self, message_id: str) -> Timeline:
        """Return what befell a message, and where groups stand with it; raises as ``message``."""
        return self._portal.call(self._twin.timeline, message_id)

    def find(
        self,
        topic: str,
        *,
        key: str | None = None,
        tag: str | None = None,
        begin: datetime | None = None,
        end: datetime | None = None,
        group: str | None = None,
        group_state: Literal["past", "not_yet"] = "not_yet",
        bodies: bool = False,
        limit: int = LIST_LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> MessagePage:
        """Return a page of a topic's messages, the newest first.

        Args:
            topic: Whose messages.
            key: Only those with this key; compared exactly.
            tag: Only those with this tag.
            begin: Stored then or later.
            end: Stored before then.
            group: Only those that this group has read, or not.
            group_state: Which of the two; "past" is refused where no group is given.
            bodies: Whether they come with bodies and properties; 100 at most do.
            limit: Messages at most.
            cursor: ``next_cursor`` of the page before.
        """
        return self._portal.call(
            self._twin.find,
            topic,
            key=key,
            tag=tag,
            begin=begin,
            end=end,
            group=group,
            group_state=group_state,
            bodies=bodies,
            limit=limit,
            cursor=cursor,
        )

    def status(self) -> QueryStatus:
        """Return how far the query services have read each broker's log."""
        return self._portal.call(self._twin.status)

    def rebuild(self, brokers: Iterable[str] | None = None) -> list[str]:
        """Have the read model made anew of some brokers' logs, or of all; return which.

        What is there answers until then; ``status`` tells how far it is.
        """
        return self._portal.call(self._twin.rebuild, read_here(brokers))

    def forget(self, broker_name: str) -> None:
        """Drop all that was read of a broker's log which was taken away for good.

        No answer lacks anything of it from then on. One that comes back under this name is read
        anew. What the transaction checkers know of it, ``admin.transactions.forget`` drops.

        Raises:
            BrokerNotFoundError: Its log has never been followed, or it has been forgotten.
            ConflictError: A name server still knows it: stop it first.
        """
        self._portal.call(self._twin.forget, broker_name)

    def urls(self) -> list[str]:
        """Return where the query services are that have not failed; the first is the one in use.

        Raises:
            NoRouteError: None is known.
        """
        return self._portal.call(self._twin.urls)
