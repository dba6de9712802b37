"""A broker's resources beside the hot routes, as functions: topics, offsets, groups, status.

Shared by administration and consumers; each call is one request with the client's time-out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, Literal, TypeVar

import msgspec
import pydantic
from pydantic import BaseModel
from pydantic import ValidationError as PydanticError

from eruca.aio.http.transport import (
    JSON_HEADER,
    UNREADABLE,
    HttpResponse,
    HttpTransport,
    path_segment,
    problem_error,
    target_of,
)
from eruca.contract.errors import TransportError, ValidationError
from eruca.contract.groups import GroupOffsets, OffsetCommit, OffsetCommits
from eruca.contract.messages import FoundMessages, LogRecordView
from eruca.contract.models import (
    BrokerStatus,
    OffsetByTime,
    TopicConfig,
    TopicList,
    TopicQueues,
    TopicSettings,
)

M = TypeVar("M", bound=BaseModel)

COMMIT_COUNT_MAX: Final = 1_024  # offsets in one request, as OffsetCommits has it


class BrokerApi:
    """Requests to brokers, each given by its URL."""

    def __init__(self, transport: HttpTransport, timeout: float) -> None:
        self._transport = transport
        self._timeout = timeout

    async def put_topic(
        self, url: str, topic: str, settings: TopicSettings
    ) -> tuple[TopicConfig, bool]:
        """Create a topic or change its settings; return it, and whether it is new."""
        target = f"/v1/topics/{path_segment(topic)}"
        answer = await self._send("PUT", url, target, settings.model_dump_json().encode())
        return parsed(TopicConfig, answer, target), answer.status == 201

    async def get_topic(self, url: str, topic: str) -> TopicConfig:
        """Return a topic as this broker has it."""
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
        """Return the offsets of a topic's queues on this broker."""
        target = target_of(
            f"/v1/topics/{path_segment(topic)}/queues", include_system=include_system or None
        )
        return await self._get(TopicQueues, url, target)

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
        """Return the offset that a time leads to in one queue."""
        target = target_of(
            f"/v1/topics/{path_segment(topic)}/queues/{queue_id}/offset",
            timestamp=utc_text(timestamp),
            boundary=boundary,
            include_system=include_system or None,
        )
        return await self._get(OffsetByTime, url, target)

    async def group_offsets(self, url: str, group: str, topic: str | None = None) -> GroupOffsets:
        """Return where a group stands on this broker."""
        target = target_of(f"/v1/groups/{path_segment(group)}/offsets", topic=topic)
        return await self._get(GroupOffsets, url, target)

    async def commit_offsets(self, url: str, group: str, commits: list[OffsetCommit]) -> None:
        """Store a group's offsets on this broker."""
        target = f"/v1/groups/{path_segment(group)}/offsets"
        for start in range(0, len(commits), COMMIT_COUNT_MAX):
            part = OffsetCommits(offsets=commits[start : start + COMMIT_COUNT_MAX])
            await self._send("PUT", url, target, part.model_dump_json(exclude_none=True).encode())

    async def status(self, url: str) -> BrokerStatus:
        """Return who the broker is and how it is doing."""
        return await self._get(BrokerStatus, url, "/v1/status")

    async def record(self, url: str, log_offset: int) -> LogRecordView:
        """Return the record at a log offset."""
        target = f"/v1/log/records/{log_offset}"
        answer = await self._send("GET", url, target)
        try:
            return msgspec.json.decode(answer.body, type=LogRecordView)
        except UNREADABLE as error:
            raise TransportError(f"{url}{target}: the answer cannot be read: {error}") from error

    async def messages_by_key(
        self,
        url: str,
        topic: str,
        key: str,
        *,
        begin: datetime | None,
        end: datetime | None,
        limit: int,
    ) -> FoundMessages:
        """Return messages of a topic on this broker by key or unique id, newest first."""
        target = target_of(
            f"/v1/topics/{path_segment(topic)}/messages",
            key=key,
            from_=None if begin is None else utc_text(begin),
            to=None if end is None else utc_text(end),
            limit=limit,
        )
        answer = await self._send("GET", url, target)
        try:
            return msgspec.json.decode(answer.body, type=FoundMessages)
        except UNREADABLE as error:
            raise TransportError(f"{url}{target}: the answer cannot be read: {error}") from error

    async def _get(self, model: type[M], url: str, target: str) -> M:
        return parsed(model, await self._send("GET", url, target), url + target)

    async def _send(
        self, method: str, url: str, target: str, body: bytes | None = None
    ) -> HttpResponse:
        answer = await self._transport.request(
            method,
            url,
            target,
            headers=() if body is None else (JSON_HEADER,),
            body=() if body is None else (body,),
            timeout=self._timeout,
        )
        if answer.status >= 300:
            raise problem_error(answer, f"{method} {url}{target}")
        return answer


async def send_model(
    transport: HttpTransport,
    method: str,
    url: str,
    target: str,
    body: BaseModel | None = None,
    *,
    timeout: float,
) -> HttpResponse:
    """Send a request whose body, if any, is a model, and return its answer; raise a refusal."""
    answer = await transport.request(
        method,
        url,
        target,
        headers=() if body is None else (JSON_HEADER,),
        body=() if body is None else (body.model_dump_json(by_alias=True).encode(),),
        timeout=timeout,
    )
    if answer.status >= 300:
        raise problem_error(answer, f"{method} {url}{target}")
    return answer


@contextmanager
def checked_request() -> Iterator[None]:
    """Let a request be made of a caller's values; refuse what the contract does not allow in it.

    Raises:
        ValidationError: One of the values is not allowed: as the service would say.
    """
    try:
        yield
    except pydantic.ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        first = faults[0]
        name = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise ValidationError(f"{name}: {reason}; got {first['input']!r:.80}{more}") from None


def parsed(model: type[M], answer: HttpResponse, what: str) -> M:
    """Return an answer's body as *model*."""
    try:
        return model.model_validate_json(answer.body)
    except PydanticError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"])) or "body"
        raise TransportError(
            f"{what}: the answer cannot be read: {where}: {fault['msg']}",
            fix="see whether the service that is meant answers there: eruca doctor",
        ) from error


def utc_text(moment: datetime) -> str:
    """Return *moment* as RFC 3339 in UTC.

    Raises:
        ValidationError: It has no time zone, so it could mean any of a day's moments.
    """
    if moment.tzinfo is None:
        raise ValidationError(
            f"timestamp: {moment!r} has no time zone", fix="such as datetime.now(UTC)"
        )
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
