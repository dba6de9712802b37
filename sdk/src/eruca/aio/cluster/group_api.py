"""A group's resources at a broker, as its members use them: membership, locks, commits, retries.

Each function is one request. The broker may hold a request (for a lock that another member has, or
a member list that has not changed). Such a request takes up to its ``wait`` longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel

from eruca.aio.cluster.requests import parsed, send_model
from eruca.aio.http.transport import (
    HttpResponse,
    HttpTransport,
    path_segment,
    problem_error,
    target_of,
)
from eruca.contract.errors import GroupNotFoundError
from eruca.contract.groups import (
    GroupConfig,
    Heartbeat,
    LockAnswer,
    LockRelease,
    LockRequest,
    MemberAnswer,
    MemberList,
    OffsetCommits,
    QueueRelease,
    WantedQueue,
)
from eruca.contract.retries import SendBack, SendBackResult, SendBackResults, SendBacks

_OK: Final = 200
_NOT_MODIFIED: Final = 304


class GroupApi:
    """Requests of one member to brokers, each given by its URL.

    Args:
        transport: Carries the requests.
        group: The member's group.
        client_id: The member.
        incarnation: Distinguishes it from other processes with the same client id.
        timeout: Seconds for an answer, beyond the time that a request is held.
    """

    def __init__(
        self,
        transport: HttpTransport,
        group: str,
        *,
        client_id: str,
        incarnation: str,
        timeout: float,
    ) -> None:
        self._transport = transport
        self._group = group
        self._path = group_path(group)
        self._member_path = f"{self._path}/members/{path_segment(client_id)}"
        self.client_id = client_id
        self.incarnation = incarnation
        self._timeout = timeout

    def over(self, transport: HttpTransport) -> GroupApi:
        """Return the same member's requests over another transport."""
        return GroupApi(
            transport,
            self._group,
            client_id=self.client_id,
            incarnation=self.incarnation,
            timeout=self._timeout,
        )

    async def config(self, url: str) -> GroupConfig:
        """Return this broker's settings of the group."""
        return parsed(GroupConfig, await self._send("GET", url, self._path), url + self._path)

    async def beat(self, url: str, heartbeat: Heartbeat, *, timeout: float) -> MemberAnswer:
        """Join the group, or renew the session."""
        answer = await send_model(
            *(self._transport, "PUT", url, self._member_path, heartbeat),
            timeout=timeout,
            exclude_none=True,  # an earlier version refuses a field that it does not know
        )
        return parsed(MemberAnswer, answer, url + self._member_path)

    async def leave(self, url: str) -> None:
        """Leave the group; the broker releases all of its locks."""
        await self._send("DELETE", url, target_of(self._member_path, incarnation=self.incarnation))

    async def members(
        self, url: str, *, etag: str | None, wait: float
    ) -> tuple[MemberList, str | None] | None:
        """Return the group's members and the list's ETag; None if the list still has *etag*."""
        target = target_of(f"{self._path}/members", wait_seconds=wait)
        answer = await self._transport.request(
            "GET",
            url,
            target,
            headers=() if etag is None else (("if-none-match", etag),),
            timeout=self._timeout + wait,
        )
        if answer.status == _NOT_MODIFIED:
            return None
        if answer.status != _OK:
            raise problem_error(answer, f"GET {url}{target}")
        return parsed(MemberList, answer, url + target), answer.headers.get("etag")

    async def lock(self, url: str, queues: Sequence[WantedQueue], *, wait: float) -> LockAnswer:
        """Request queue locks; if none is free, wait for the first."""
        request = LockRequest(
            client_id=self.client_id,
            incarnation=self.incarnation,
            queues=list(queues),
            wait_seconds=wait,
        )
        target = f"{self._path}/locks"
        answer = await self._send("POST", url, target, request, timeout=self._timeout + wait)
        return parsed(LockAnswer, answer, url + target)

    async def release(self, url: str, queues: Sequence[QueueRelease]) -> None:
        """Commit the final offsets of queues and release their locks, in one step."""
        request = LockRelease(
            client_id=self.client_id, incarnation=self.incarnation, queues=list(queues)
        )
        await self._send("POST", url, f"{self._path}/locks:release", request)

    async def commit(self, url: str, commits: OffsetCommits) -> None:
        """Commit queue offsets: all of them or none."""
        await self._send("PUT", url, f"{self._path}/offsets", commits)

    async def send_back(self, url: str, messages: Sequence[SendBack]) -> list[SendBackResult]:
        """Schedule messages for redelivery: all of them or none."""
        request = SendBacks(
            client_id=self.client_id, incarnation=self.incarnation, messages=list(messages)
        )
        target = f"{self._path}/retries"
        answer = await self._send("POST", url, target, request)
        return parsed(SendBackResults, answer, url + target).results

    async def _send(
        self,
        method: str,
        url: str,
        target: str,
        body: BaseModel | None = None,
        *,
        timeout: float | None = None,
    ) -> HttpResponse:
        return await send_model(
            self._transport, method, url, target, body, timeout=timeout or self._timeout
        )


def unknown_group(group: str) -> GroupNotFoundError:
    """Return the error for a *group* that no broker knows."""
    return GroupNotFoundError(
        f"no broker has a group {group!r}",
        fix=f"create it: eruca group create {group}; list the groups: eruca group list",
    )


def group_path(group: str) -> str:
    """Return the path of a group's resources at a broker."""
    return f"/v1/groups/{path_segment(group)}"
