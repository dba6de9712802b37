"""Questions to the query service: messages by id, key, tag and time, and what befell them.

Any query service of a cluster will do. Where ``ERUCA_QUERY_URLS`` does not name them, the name
servers' key-value table does; one that does not answer is left for the next one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from pydantic import BaseModel

from eruca.aio.broker_api import parsed, send_model, utc_text
from eruca.aio.transport import path_segment, problem_error, target_of
from eruca.contract.errors import NoRouteError, TimeoutExpiredError, TransportError
from eruca.contract.limits import LIST_LIMIT_DEFAULT
from eruca.contract.models import KvNamespace
from eruca.contract.queries import (
    QUERY_INSTANCES_NAMESPACE,
    MessageFound,
    MessagePage,
    QueryStatus,
    RebuildBegun,
    RebuildRequest,
    Timeline,
)
from eruca.core.client_settings import checked_urls

if TYPE_CHECKING:
    from eruca.aio.client_context import ClientContext

URLS_VARIABLE: Final = "ERUCA_QUERY_URLS"
ANSWER_SECONDS: Final = 20.0  # it may have to look through much, and ask brokers
_TARGET: Final = f"/v1/kv/{path_segment(QUERY_INSTANCES_NAMESPACE)}"
_SUCH_AS: Final = "http://127.0.0.1:10931"
_START: Final = f"start one: python -m eruca_query; or set {URLS_VARIABLE} to one that runs"
M = TypeVar("M", bound=BaseModel)


class AsyncQuery:
    """Asks the query services of a client's cluster; made by :attr:`eruca.AsyncClient.query`."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._urls: list[str] = []  # those that have not failed; the first is in use

    async def message(self, message_id: str) -> MessageFound:
        """Return the message with an offset id or a unique id.

        Raises:
            MessageNotFoundError: There is none.
            SearchIncompleteError: None was found, and not everything could be looked through.
        """
        return await self._ask(MessageFound, "GET", f"/v1/messages/{path_segment(message_id)}")

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
            end: Stored then or before.
            group: Only those that this group has read, or not.
            group_state: Which of the two.
            bodies: Whether they come with bodies and properties; 100 at most do.
            limit: Messages at most.
            cursor: ``next_cursor`` of the page before.
        """
        target = target_of(
            "/v1/messages",
            topic=topic,
            key=key,
            tag=tag,
            from_=None if begin is None else utc_text(begin),
            to=None if end is None else utc_text(end),
            group=group,
            group_state=None if group is None else group_state,
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

    async def _ask(
        self, model: type[M], method: str, target: str, body: BaseModel | None = None
    ) -> M:
        self._context.check_open()
        if not self._urls:
            self._urls = await self._known_urls()
        while True:
            url = self._urls[0]
            try:
                answer = await send_model(
                    self._context.transport, method, url, target, body, timeout=ANSWER_SECONDS
                )
            except (TransportError, TimeoutExpiredError) as error:
                self._urls.remove(url)
                if not self._urls:
                    error.fix = error.fix or _START
                    raise
            else:
                return parsed(model, answer, url + target)

    async def _known_urls(self) -> list[str]:
        given = os.environ.get(URLS_VARIABLE)
        if given:
            return list(checked_urls(given, URLS_VARIABLE, "a query service", such_as=_SUCH_AS))
        answer = await self._context.name_servers.request(
            "GET", _TARGET, timeout=self._context.settings.timeout_seconds
        )
        if answer.status >= 300:
            raise problem_error(answer, f"GET {_TARGET}")
        urls = [*parsed(KvNamespace, answer, _TARGET).entries.values()]
        if not urls:
            raise NoRouteError(
                f"no query service is known to {self._context.name_servers.current_url}",
                fix=_START,
            )
        random.shuffle(urls)  # clients share the services
        return urls
