"""A broker's resources except the hot routes: topics, offsets, groups, status.

Administration and consumers share them. Each call is one request with the client's timeout.

Offsets are the master's word alone, because readers begin at them. Another replica may not show yet
what has been acknowledged or committed, and its log may begin later.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, TypeVar

import msgspec
from pydantic import BaseModel

from eruca.aio.cluster.requests import parsed, send_model, utc_text
from eruca.aio.http.transport import (
    UNREADABLE,
    HttpResponse,
    HttpTransport,
    path_segment,
    target_of,
)
from eruca.contract.errors import NotMasterForSureError, TransportError
from eruca.contract.groups import GroupOffsets, OffsetCommit, OffsetCommits
from eruca.contract.limits import OFFSET_COUNT_MAX
from eruca.contract.messages import FoundMessages, LogRecordView
from eruca.contract.status import BrokerStatus
from eruca.contract.topics import OffsetByTime, TopicConfig, TopicList, TopicQueues, TopicSettings
from eruca.contract.wire import is_masters_word

MASTER_PAUSE_SECONDS: Final = 1.0  # before a master is asked for again

M = TypeVar("M", bound=BaseModel)


class BrokerApi:
    """Requests to brokers, each given by its URL."""

    def __init__(self, transport: HttpTransport, timeout: float) -> None:
        self._transport = transport
        self._timeout = timeout

    async def put_topic(
        self, url: str, topic: str, settings: TopicSettings, *, is_forced: bool = False
    ) -> TopicConfig:
        """Create a topic or change its settings; return it."""
        target = target_of(f"/v1/topics/{path_segment(topic)}", force="true" if is_forced else None)
        return parsed(TopicConfig, await self._send("PUT", url, target, settings), url + target)

    async def get_topic(self, url: str, topic: str) -> TopicConfig:
        """Return this broker's settings of a topic."""
        return await self._get(TopicConfig, url, f"/v1/topics/{path_segment(topic)}")

    async def delete_topic(self, url: str, topic: str) -> None:
        """Delete a topic on this broker."""
        await self._send("DELETE", url, f"/v1/topics/{path_segment(topic)}")

    async def list_topics(
        self, url: str, *, cursor: str | None, limit: int, include_system: bool
    ) -> TopicList:
        """Return a page of this broker's topics."""
        target = target_of(
            "/v1/topics", cursor=cursor, limit=limit, include_system=include_system or None
        )
        return await self._get(TopicList, url, target)

    async def topic_queues(
        self, url: str, topic: str, *, include_system: bool = False
    ) -> TopicQueues:
        """Return the offsets of a topic's queues on this broker.

        Raises:
            NotMasterForSureError: The answer is another replica's than the master's.
        """
        target = target_of(
            f"/v1/topics/{path_segment(topic)}/queues", include_system=include_system or None
        )
        return await self._get_of_master(TopicQueues, url, target)

    async def offset_by_time(
        self,
        url: str,
        topic: str,
        queue_id: int,
        timestamp: datetime,
        *,
        boundary: Literal["lower", "upper"] = "lower",
        include_system: bool = False,
    ) -> OffsetByTime:
        """Return the offset for a time in one queue; raises as :meth:`topic_queues` does."""
        target = target_of(
            f"/v1/topics/{path_segment(topic)}/queues/{queue_id}/offset",
            timestamp=utc_text(timestamp),
            boundary=boundary,
            include_system=include_system or None,
        )
        return await self._get_of_master(OffsetByTime, url, target)

    async def group_offsets(self, url: str, group: str, topic: str | None = None) -> GroupOffsets:
        """Return a group's offsets on this broker; raises as :meth:`topic_queues` does."""
        target = target_of(f"/v1/groups/{path_segment(group)}/offsets", topic=topic)
        return await self._get_of_master(GroupOffsets, url, target)

    async def commit_offsets(self, url: str, group: str, commits: list[OffsetCommit]) -> None:
        """Store a group's offsets on this broker."""
        target = f"/v1/groups/{path_segment(group)}/offsets"
        for first in range(0, len(commits), OFFSET_COUNT_MAX):
            part = OffsetCommits(offsets=commits[first : first + OFFSET_COUNT_MAX])
            await send_model(  # most commits have no token
                self._transport,
                "PUT",
                url,
                target,
                part,
                timeout=self._timeout,
                exclude_none=True,
            )

    async def status(self, url: str) -> BrokerStatus:
        """Return the broker's identity and health."""
        return await self._get(BrokerStatus, url, "/v1/status")

    async def record(self, url: str, log_offset: int) -> LogRecordView:
        """Return the record at a log offset."""
        target = f"/v1/log/records/{log_offset}"
        answer = await self._send("GET", url, target)
        try:
            return msgspec.json.decode(answer.body, type=LogRecordView)
        except UNREADABLE as error:
            raise TransportError(f"{url}{target}: the answer is invalid: {error}") from error

    async def messages_by_key(
        self,
        url: str,
        topic: str,
        key: str,
        *,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        cursor: str | None = None,
    ) -> FoundMessages:
        """Return a page of a topic's messages on this broker by key or unique id, newest first."""
        target = target_of(
            f"/v1/topics/{path_segment(topic)}/messages",
            key=key,
            since=None if since is None else utc_text(since),
            until=None if until is None else utc_text(until),
            limit=limit,
            cursor=cursor,
        )
        answer = await self._send("GET", url, target)
        try:
            return msgspec.json.decode(answer.body, type=FoundMessages)
        except UNREADABLE as error:
            raise TransportError(f"{url}{target}: the answer is invalid: {error}") from error

    async def _get(self, model: type[M], url: str, target: str) -> M:
        return parsed(model, await self._send("GET", url, target), url + target)

    async def _get_of_master(self, model: type[M], url: str, target: str) -> M:
        answer = await self._send("GET", url, target)
        if not is_masters_word(answer.headers):
            raise NotMasterForSureError(
                f"expected the answer of a master, found that of another replica at {url}",
                retry_after_seconds=MASTER_PAUSE_SECONDS,
            )
        return parsed(model, answer, url + target)

    async def _send(
        self, method: str, url: str, target: str, body: BaseModel | None = None
    ) -> HttpResponse:
        return await send_model(self._transport, method, url, target, body, timeout=self._timeout)
