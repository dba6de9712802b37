"""Client of the query service: messages by id, key, tag and time, and their history.

All query services of a cluster are equivalent. ``ERUCA_QUERY_URLS`` names them, or else the name
servers' key-value table does (:mod:`eruca.aio.cluster.instances`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from pydantic import BaseModel

from eruca.aio.cluster.instances import Instances
from eruca.aio.cluster.requests import parsed, utc_text
from eruca.aio.http.transport import path_segment, target_of
from eruca.contract.limits import LIST_LIMIT_DEFAULT
from eruca.contract.queries import (
    MessageCounts,
    MessageFound,
    MessagePage,
    QueryStatus,
    RebuildBegun,
    RebuildRequest,
    Timeline,
)
from eruca.core.checked_arguments import checked_calls
from eruca.core.checked_names import check_group, check_topic
from eruca.core.routing.services import QUERY_SERVICE

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext

ANSWER_SECONDS: Final = 20.0  # a query may search much data and call brokers
M = TypeVar("M", bound=BaseModel)


@checked_calls()
class AsyncQuery:
    """Requests to a cluster's query services; made by :attr:`eruca.AsyncClient.query`."""

    def __init__(self, context: ClientContext) -> None:
        self._instances = Instances(QUERY_SERVICE, context, timeout=ANSWER_SECONDS)

    async def message(self, message_id: str, *, topic: str | None = None) -> MessageFound:
        """Return the message with an offset id or a unique id.

        Args:
            message_id: Either id.
            topic: The message's topic, because messages in several topics may share a unique id.
                None: the first that consumers saw; ``also_stored`` lists the others.

        Raises:
            MessageNotFoundError: No message has this id.
            SearchIncompleteError: No message was found, and a part of the data was not searched.
        """
        if topic is not None:
            check_topic(topic)
        target = target_of(f"/v1/messages/{path_segment(message_id)}", topic=topic)
        return await self._ask(MessageFound, "GET", target)

    async def timeline(self, message_id: str) -> Timeline:
        """Return a message's history, and its state in each group; raises as ``message``."""
        target = f"/v1/messages/{path_segment(message_id)}/timeline"
        return await self._ask(Timeline, "GET", target)

    async def find(
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
        check_topic(topic)
        if group is not None:
            check_group(group)
        target = target_of(
            "/v1/messages",
            topic=topic,
            key=key,
            tag=tag,
            since=None if since is None else utc_text(since),
            until=None if until is None else utc_text(until),
            group=group,
            group_state=group_state,
            bodies="true" if bodies else None,
            limit=limit,
            cursor=cursor,
        )
        return await self._ask(MessagePage, "GET", target)

    async def counts(
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
        check_topic(topic)
        target = target_of(
            "/v1/message-counts",
            topic=topic,
            since=None if since is None else utc_text(since),
            until=None if until is None else utc_text(until),
            buckets=buckets,
        )
        return await self._ask(MessageCounts, "GET", target)

    async def status(self) -> QueryStatus:
        """Return how far the query services have read each broker's log."""
        return await self._ask(QueryStatus, "GET", "/v1/status")

    async def rebuild(self, brokers: Iterable[str] | None = None) -> list[str]:
        """Rebuild the read model from the logs of some brokers, or of all; return their names.

        Until it is done, the current read model answers queries; ``status`` shows the progress.
        """
        request = RebuildRequest(brokers=None if brokers is None else list(brokers))
        begun = await self._ask(RebuildBegun, "POST", "/v1/projection:rebuild", request)
        return begun.brokers

    async def forget(self, broker_name: str) -> None:
        """Drop all data from the log of a broker that was removed for good.

        From then on, no answer is incomplete because of that broker. If a broker returns under this
        name, its log is read from the beginning. To drop the transaction checkers' data, call
        ``admin.transactions.forget``.

        Raises:
            BrokerNotFoundError: Its log was never followed, or has already been dropped.
            ConflictError: A name server still knows the broker: stop it first.
        """
        await self._instances.request("DELETE", f"/v1/brokers/{path_segment(broker_name)}")

    async def urls(self) -> list[str]:
        """Return the URLs of the query services that have not failed; the first is in use.

        Raises:
            NoRouteError: No query service is known.
        """
        return await self._instances.urls()

    async def _ask(
        self, model: type[M], method: str, target: str, body: BaseModel | None = None
    ) -> M:
        answer, url = await self._instances.request(method, target, body)
        return parsed(model, answer, url + target)
