"""Search a topic's messages by key or unique id, at all of its brokers, page by page.

A broker may have most of its log in its tier: then a search takes many pages. What a broker could
not search is never taken for not there.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from eruca.aio.cluster.masters import on_each
from eruca.contract.errors import ErucaError, RecordNotFoundError, SearchIncompleteError
from eruca.contract.limits import KEY_QUERY_COUNT_MAX

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext
    from eruca.aio.cluster.masters import Masters
    from eruca.contract.messages import FoundMessages, PulledMessage

_REASONS_MAX: Final = 8  # per broker, why a search is incomplete


class KeySearches:
    """Searches in the topics of one cluster."""

    def __init__(self, context: ClientContext, masters: Masters) -> None:
        self._context = context
        self._masters = masters

    async def all(
        self,
        topic: str,
        key: str,
        *,
        since: datetime | None,
        until: datetime | None,
        limit: int | None,
        incomplete: dict[str, str] | None,
    ) -> list[PulledMessage]:
        """Return all messages of *topic* with a key; see :meth:`.AsyncAdmin.messages_by_key`."""
        urls = await self._masters.of_topic(topic)

        async def ask(url: str) -> tuple[list[PulledMessage], list[str]]:
            found: list[PulledMessage] = []
            missing: list[str] = []
            cursor: str | None = None
            while limit is None or len(found) < limit:
                left = KEY_QUERY_COUNT_MAX if limit is None else limit - len(found)
                page = await self._context.broker_api.messages_by_key(
                    url,
                    topic,
                    key,
                    since=since,
                    until=until,
                    limit=min(left, KEY_QUERY_COUNT_MAX),
                    cursor=cursor,
                )
                found += page.messages
                missing += _reasons(page)[: _REASONS_MAX - len(missing)]
                cursor = page.next_cursor
                if cursor is None:
                    break
            return found, missing

        answers = await on_each(urls, ask)
        lacking = {name: "; ".join(missing) for name, (_, missing) in answers.items() if missing}
        if incomplete is not None:
            incomplete.update(lacking)
        elif lacking:
            raise SearchIncompleteError(
                f"more messages of {topic} may have the key {key!r}: {_listed(lacking)}",
                fix="give a dict as incomplete to get what was found; or search by time",
            )
        found = [message for messages, _ in answers.values() for message in messages]
        found.sort(key=lambda message: message.stored_at or "", reverse=True)
        return found[:limit]

    async def by_unique_id(self, topic: str, unique_id: str) -> PulledMessage:
        """Return the message with a unique id; see :meth:`.AsyncAdmin.message_by_unique_id`."""
        urls = await self._masters.of_topic(topic)
        hits: list[PulledMessage] = []

        async def ask(url: str) -> list[str]:
            missing: list[str] = []
            cursor: str | None = None
            while not hits:  # another broker may have found it meanwhile
                page = await self._context.broker_api.messages_by_key(
                    url,
                    topic,
                    unique_id,
                    since=None,
                    until=None,
                    limit=KEY_QUERY_COUNT_MAX,
                    cursor=cursor,
                )
                # Other messages may have the id as a key.
                hits.extend(one for one in page.messages if one.message_id == unique_id)
                missing += _reasons(page)[: _REASONS_MAX - len(missing)]
                cursor = page.next_cursor
                if cursor is None:
                    break
            return missing

        try:
            answers = await on_each(urls, ask)
        except ErucaError:
            if hits:
                return hits[0]
            raise
        if hits:
            return hits[0]
        fix = f"use eruca query id {unique_id}, which searches in all topics"
        lacking = {name: "; ".join(missing) for name, missing in answers.items() if missing}
        if lacking:
            raise SearchIncompleteError(
                f"{topic} may have a message with the id {unique_id}: {_listed(lacking)}", fix=fix
            )
        raise RecordNotFoundError(f"{topic} has no message with the id {unique_id}", fix=fix)


def _reasons(page: FoundMessages) -> list[str]:
    """Return why a page is not complete, but for the pages that follow."""
    reasons = [
        f"the record at log offset {one.log_offset} may have the key: {one.reason}"
        for one in page.damaged
    ]
    return reasons if page.incomplete is None else [*reasons, page.incomplete]


def _listed(lacking: dict[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in sorted(lacking.items()))
