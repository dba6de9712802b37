"""A group's resources at a broker, as its members use them: membership, locks, commits, retries.

Each function is one request. What is held (a lock that somebody else has, a list of members that
has not changed) takes up to its ``wait`` longer.
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
        transport: Carries them.
        group: The member's group.
        client_id: The member.
        incarnation: Tells it from others of its client id.
        timeout: Seconds for an answer, beyond what a request is held for.
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
        """Return the same member's requests, carried by another transport."""
        return GroupApi(
            transport,
            self._group,
            client_id=self.client_id,
            incarnation=self.incarnation,
            timeout=self._timeout,
        )

    async def config(self, url: str) -> GroupConfig:
        """Return the group as this broker has it."""
        return parsed(GroupConfig, await self._send("GET", url, self._path), url + self._path)

    async def beat(self, url: str, heartbeat: Heartbeat, *, timeout: float) -> MemberAnswer:
        """Join the group, or renew the session."""
        answer = await self._send("PUT", url, self._member_path, heartbeat, timeout=timeout)
        return parsed(MemberAnswer, answer, url + self._member_path)

    async def leave(self, url: str) -> None:
        """Leave the group; every lock is free then."""
        await self._send("DELETE", url, target_of(self._member_path, incarnation=self.incarnation))

    async def members(
        self, url: str, *, etag: str | None, wait: float
    ) -> tuple[MemberList, str | None] | None:
        """Return who is in the group, and the list's ETag; None if it is still that of *etag*."""
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
        """Ask for queues; where none can be had, wait for the first."""
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
        """Commit the final offsets of queues and give them up, as one."""
        request = LockRelease(
            client_id=self.client_id, incarnation=self.incarnation, queues=list(queues)
        )
        await self._send("POST", url, f"{self._path}/locks:release", request)

    async def commit(self, url: str, commits: OffsetCommits) -> None:
        """Store how far queues have been consumed; all of them or none."""
        await self._send("PUT", url, f"{self._path}/offsets", commits)

    async def send_back(self, url: str, messages: Sequence[SendBack]) -> list[SendBackResult]:
        """Have messages delivered again later; all of them or none."""
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
    """Return what is raised where no broker knows *group*."""
    return GroupNotFoundError(
        f"no broker has a group {group!r}",
        fix=f"create it: eruca group create {group}; there are: eruca group list",
    )


def group_path(group: str) -> str:
    """Return where a group's resources are at a broker."""
    return f"/v1/groups/{path_segment(group)}"
