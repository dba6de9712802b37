"""A broker's resources except the hot routes: topics, offsets, groups, status.

Administration and consumers share them. Each call is one request with the client's timeout.

Offsets are the master's word alone, because readers begin at them. Another replica may not show yet
what has been acknowledged or committed, and its log may begin later. If one answers, for example in
an election, the request is repeated at the master that name servers know by then.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec
from pydantic import BaseModel

from eruca.aio.cluster.requests import parsed, send_model, utc_text
from eruca.aio.http.transport import (
    UNREADABLE,
    HttpResponse,
    HttpTransport,
    path_segment,
    problem_error,
    target_of,
)
from eruca.contract.errors import ErucaError, NotMasterForSureError, TransportError
from eruca.contract.fields import MASTER_ID
from eruca.contract.groups import GroupOffsets, OffsetCommit, OffsetCommits
from eruca.contract.limits import OFFSET_COUNT_MAX
from eruca.contract.messages import FoundMessages, LogRecordView
from eruca.contract.routes import BrokerList
from eruca.contract.status import BrokerStatus
from eruca.contract.topics import OffsetByTime, TopicConfig, TopicList, TopicQueues, TopicSettings
from eruca.contract.wire import is_masters_word
from eruca.core.pauses import doubled
from eruca.core.routing.route_table import DEFAULT_NETWORK, address_for

if TYPE_CHECKING:
    from eruca.aio.cluster.name_servers import NameServers

PAUSE_SECONDS: Final = 0.05  # after another replica's answer; doubles
MASTER_PAUSE_SECONDS: Final = 1.0  # before a master is asked for again

M = TypeVar("M", bound=BaseModel)


class BrokerApi:
    """Requests to brokers, each given by its URL.

    Args:
        transport: Sends the requests.
        timeout: Seconds for each call.
        name_servers: Name the master instead of another replica that has answered.
        network: The network whose broker addresses this client uses.
    """

    def __init__(
        self,
        transport: HttpTransport,
        timeout: float,
        *,
        name_servers: NameServers | None = None,
        network: str = DEFAULT_NETWORK,
    ) -> None:
        self._transport = transport
        self._timeout = timeout
        self._name_servers = name_servers
        self._network = network

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
            NotMasterForSureError: Until the timeout, all answers are other replicas'.
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
        deadline = monotonic() + self._timeout
        place, seconds = url, self._timeout
        for rounds in count():
            answer = await send_model(self._transport, "GET", place, target, timeout=seconds)
            if is_masters_word(answer.headers):
                return parsed(model, answer, place + target)
            pause = doubled(PAUSE_SECONDS, rounds, MASTER_PAUSE_SECONDS)
            if monotonic() + pause >= deadline:
                break
            await asyncio.sleep(pause)
            place = await self._master_of(place, deadline - monotonic())
            seconds = max(deadline - monotonic(), PAUSE_SECONDS)
        raise NotMasterForSureError(
            f"expected the answer of a master, found that of another replica at {place}",
            retry_after_seconds=MASTER_PAUSE_SECONDS,
        )

    async def _master_of(self, url: str, timeout: float) -> str:
        """Return the URL of the master instead of *url*; *url* itself if it is not told now."""
        if self._name_servers is None:
            return url
        # If they do not answer, the same replica is asked again. Its answer is the error then.
        with suppress(ErucaError):
            target = "/v1/brokers"
            answer = await self._name_servers.request("GET", target, timeout=timeout)
            if answer.status != 200:
                raise problem_error(answer, f"GET {target}")
            for group in parsed(BrokerList, answer, target).brokers:
                urls = {
                    one.broker_id: address_for(one.urls, self._network) for one in group.brokers
                }
                if url in urls.values():
                    return urls.get(MASTER_ID, url)
        return url

    async def _send(
        self, method: str, url: str, target: str, body: BaseModel | None = None
    ) -> HttpResponse:
        return await send_model(self._transport, method, url, target, body, timeout=self._timeout)
