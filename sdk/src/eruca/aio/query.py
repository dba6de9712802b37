"""Questions to the query service: messages by id, key, tag and time, and what befell them.

Any query service of a cluster will do: ``ERUCA_QUERY_URLS`` names them, or else the name servers'
key-value table does (:mod:`eruca.aio.cluster.instances`).
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

ANSWER_SECONDS: Final = 20.0  # it may have to look through much, and ask brokers
M = TypeVar("M", bound=BaseModel)


@checked_calls()
class AsyncQuery:
    """Asks the query services of a client's cluster; made by :attr:`eruca.AsyncClient.query`."""

    def __init__(self, context: ClientContext) -> None:
        self._instances = Instances(QUERY_SERVICE, context, timeout=ANSWER_SECONDS)

    async def message(self, message_id: str, *, topic: str | None = None) -> MessageFound:
        """Return the message with an offset id or a unique id.

        Args:
            message_id: Either id.
            topic: Where it lies: a unique id may be that of messages in several topics. None: the
                first that consumers saw; ``also_stored`` names the others.

        Raises:
            MessageNotFoundError: There is none.
            SearchIncompleteError: None was found, and not everything could be searched.
        """
        if topic is not None:
            check_topic(topic)
        target = target_of(f"/v1/messages/{path_segment(message_id)}", topic=topic)
        return await self._ask(MessageFound, "GET", target)

    async def timeline(self, message_id: str) -> Timeline:
        """Return what befell a message, and where groups stand with it; raises as ``message``."""
        target = f"/v1/messages/{path_segment(message_id)}/timeline"
        return await self._ask(Timeline, "GET", target)

    async def find(
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
        check_topic(topic)
        if group is not None:
            check_group(group)
        target = target_of(
            "/v1/messages",
            topic=topic,
            key=key,
            tag=tag,
            from_=None if begin is None else utc_text(begin),
            to=None if end is None else utc_text(end),
            group=group,
            group_state=group_state,
            bodies="true" if bodies else None,
            limit=limit,
            cursor=cursor,
        )
        return await self._ask(MessagePage, "GET", target)

    async def status(self) -> QueryStatus:
        """Return how far the query services have read each broker's log."""
        return await self._ask(QueryStatus, "GET", "/v1/status")

    async def rebuild(self, brokers: Iterable[str] | None = None) -> list[str]:
        """Have the read model made anew of some brokers' logs, or of all; return which.

        What is there answers until then; ``status`` tells how far it is.
        """
        request = RebuildRequest(brokers=None if brokers is None else list(brokers))
        begun = await self._ask(RebuildBegun, "POST", "/v1/projection:rebuild", request)
        return begun.brokers

    async def forget(self, broker_name: str) -> None:
        """Drop all that was read of a broker's log which was taken away for good.

        No answer lacks anything of it from then on. One that comes back under this name is read
        anew. What the transaction checkers know of it, ``admin.transactions.forget`` drops.

        Raises:
            BrokerNotFoundError: Its log has never been followed, or it has been forgotten.
            ConflictError: A name server still knows it: stop it first.
        """
        await self._instances.request("DELETE", f"/v1/brokers/{path_segment(broker_name)}")

    async def urls(self) -> list[str]:
        """Return where the query services are that have not failed; the first is the one in use.

        Raises:
            NoRouteError: None is known.
        """
        return await self._instances.urls()

    async def _ask(
        self, model: type[M], method: str, target: str, body: BaseModel | None = None
    ) -> M:
        answer, url = await self._instances.request(method, target, body)
        return parsed(model, answer, url + target)
