"""Members of a group: join and heartbeat, leave, watch."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Body, Header, Path, Query, Request, Response

from eruca.contract.access import Right
from eruca.contract.errors import (
    ClientIdInUseError,
    ConflictError,
    FilterSyntaxError,
    GroupNotFoundError,
    MemberNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    SubscriptionConflictError,
)
from eruca.contract.fields import GroupName, WaitSeconds
from eruca.contract.groups import ClientId, Heartbeat, Incarnation, MemberAnswer, MemberList
from eruca_access.needs import on_topic, see, to
from eruca_broker.api.examples import groups as group_examples
from eruca_broker.api.peers import born_host
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.core.records.rendering import host_text
from eruca_broker.processors.groups.members import Members
from eruca_chassis.admission.gate import CallersAccess
from eruca_chassis.admission.needs import in_body, in_path
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.entity_tags import is_known, known_tags, tagged_answer
from eruca_chassis.routes.direct_reads import Leaving
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router

router = Router(prefix="/v1/groups/{group}/members", tags=["groups"])

_ETAG_HEADER: Final[dict[str, Any]] = {
    "ETag": {"description": "the group's generation", "schema": {"type": "string"}}
}
_JOINED: Final = answer(
    group_examples.MEMBER_ANSWER,
    HTTPStatus.CREATED,
    model=MemberAnswer,
    description="The client has joined.",
)
Group = Annotated[GroupName, Path()]
Client = Annotated[ClientId, Path()]


@router.put(
    "/{client_id}",
    operation_id="heartbeat",
    needs=to(Right.CONSUME, topic=in_body("subscriptions.topic"), group=in_path("group")),
    summary="Join a group, or renew a membership",
    response_description="The session is renewed.",
    responses=_JOINED
    | answer(group_examples.MEMBER_ANSWER)
    | problems(
        GroupNotFoundError,
        ClientIdInUseError,
        SubscriptionConflictError,
        ConflictError,
        PermissionDeniedError,
        FilterSyntaxError,
        OverloadedError,
        *WRITE_REFUSALS,
    ),
)
async def put_member(
    group: Group,
    client_id: Client,
    *,
    heartbeat: Annotated[Heartbeat, Body(examples=[group_examples.HEARTBEAT])],
    members: Part[Members],
    access: CallersAccess,
    request: Request,
    response: Response,
) -> MemberAnswer:
    """Make the client a member for `session_seconds` from now on, and renew its locks.

    Send this every third of that time to every broker that has queues of the topics. A client
    measures its session from the moment at which it *sent* the last answered heartbeat. So it
    releases its queues before the broker gives them to others.

    All members of a group must have the same subscriptions. A member that differs is refused
    (`subscription-conflict`), and the error names the members and the difference. The subscriptions
    change if there is no other member, or by a heartbeat with `replaces_subscription_version`.
    Members that still have the old version are refused at their next heartbeats.
    """
    access.require(*(on_topic(s.topic, Right.CONSUME) for s in heartbeat.subscriptions))
    address = host_text(born_host(request.scope["client"]))
    answer, has_joined = await members.heartbeat(group, client_id, heartbeat, address)
    if has_joined:
        response.status_code = HTTPStatus.CREATED
    return answer


@router.delete(
    "/{client_id}",
    operation_id="leaveGroup",
    needs=to(Right.CONSUME, group=in_path("group")),
    summary="Leave a group",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        GroupNotFoundError, MemberNotFoundError, ClientIdInUseError, *WRITE_REFUSALS
    ),
)
async def delete_member(
    group: Group,
    client_id: Client,
    incarnation: Annotated[
        Incarnation, Query(description="the incarnation of the leaving process")
    ],
    members: Part[Members],
) -> None:
    """End the client's membership and release its locks at once.

    This commits no offsets: release the queues first, with their final offsets.
    """
    await members.leave(group, client_id, incarnation)


@router.get(
    "",
    operation_id="listMembers",
    needs=see(group=in_path("group")),
    summary="List a group's members",
    response_model=MemberList,
    responses={
        **answer(group_examples.MEMBER_LIST, headers=_ETAG_HEADER),
        304: {"description": "The generation is the one of If-None-Match", "headers": _ETAG_HEADER},
        **problems(GroupNotFoundError, OverloadedError),
    },
)
async def list_members(
    group: Group,
    members: Part[Members],
    leaving: Leaving,
    *,
    wait_seconds: WaitSeconds = 0,
    if_none_match: Annotated[
        str | None, Header(max_length=1024, description="ETags of known generations")
    ] = None,
) -> Response:
    """Return the group's members on this broker, by client id.

    With `If-None-Match` and `wait_seconds` the request is held until there is another generation
    (200), the group is deleted (404), or the time is over (304). The generation changes if members
    join, leave or expire, if subscriptions or settings change, and if offsets are reset.
    """
    current = members.generation(group)
    known = current if is_known(f'"{current}"', known_tags(if_none_match)) else None
    listing = await members.listing(group, known, wait_seconds, leaving)
    generation = known if listing is None else listing.generation
    return tagged_answer(None if listing is None else listing.body, f'W/"{generation}"')
