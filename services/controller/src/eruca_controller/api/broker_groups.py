"""Broker groups: read their rows, wait for a change, and change them under a condition."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Body, Header, Path, Query
from fastapi.responses import Response

from eruca.contract.access import Right
from eruca.contract.broker_groups import (
    Author,
    BrokerGroupHistory,
    BrokerGroupList,
    BrokerGroupPut,
    BrokerGroupView,
    GroupWaitSeconds,
    Reason,
)
from eruca.contract.errors import (
    ArbiterUnavailableError,
    BrokerGroupNotFoundError,
    ConflictError,
    OverloadedError,
    PreconditionFailedError,
    PreconditionRequiredError,
    StaleEpochError,
    ValidationError,
)
from eruca.contract.fields import BrokerName
from eruca.contract.limits import CURSOR_SIZE_MAX, LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from eruca_access.needs import see, to
from eruca_chassis.admission.needs import in_path
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor
from eruca_chassis.requests.entity_tags import tagged_answer
from eruca_chassis.routes.direct_reads import Leaving
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_controller.api import examples
from eruca_controller.arbiter import Arbiter
from eruca_controller.core.conditions import TAGS_SIZE_MAX, condition_of, known_versions

router = Router(prefix="/v1/broker-groups", tags=["broker groups"])

Name = Annotated[BrokerName, Path()]
Limit = Annotated[int, Query(ge=1, le=LIST_LIMIT_MAX)]
Cursor = Annotated[str | None, Query(max_length=CURSOR_SIZE_MAX)]
IfMatch = Annotated[
    str | None,
    Header(
        max_length=TAGS_SIZE_MAX,
        description="the ETag of the version to change; `*`: any",
        examples=[f'"{examples.VERSION}"'],
    ),
]

_ETAG: Final[dict[str, Any]] = {
    "ETag": {
        "description": "the row's version in double quotes",
        "schema": {"type": "string"},
        "example": f'"{examples.VERSION}"',
    }
}


@router.get(
    "",
    operation_id="listBrokerGroups",
    needs=to(Right.QUERY, cluster=True),
    summary="List the broker groups",
    responses=answer(examples.GROUPS) | problems(ArbiterUnavailableError),
)
async def list_broker_groups(
    arbiter: Part[Arbiter], *, limit: Limit = LIST_LIMIT_DEFAULT, cursor: Cursor = None
) -> BrokerGroupList:
    """Return groups by name, one page at a time. Continue with `next_cursor` until it is null."""
    groups = await arbiter.groups(after=decode_cursor(cursor), count_max=limit + 1)
    has_more = len(groups) > limit
    groups = groups[:limit]
    return BrokerGroupList(
        groups=groups, next_cursor=encode_cursor(groups[-1].broker_name) if has_more else None
    )


@router.get(
    "/{broker_name}",
    operation_id="getBrokerGroup",
    needs=see(broker=in_path("broker_name")),
    summary="Get a broker group, or wait for its next version",
    response_model=BrokerGroupView,
    responses={
        **answer(examples.VIEW, headers=_ETAG),
        304: {"description": "The group still has the ETag of If-None-Match", "headers": _ETAG},
        **problems(BrokerGroupNotFoundError, OverloadedError, ArbiterUnavailableError),
    },
)
async def get_broker_group(
    broker_name: Name,
    arbiter: Part[Arbiter],
    leaving: Leaving,
    *,
    wait_seconds: GroupWaitSeconds = 0,
    if_none_match: Annotated[
        str | None,
        Header(max_length=TAGS_SIZE_MAX, description="ETags of versions the client knows"),
    ] = None,
) -> Response:
    """Return the group's row, and its version as the `ETag`.

    With `If-None-Match` and `wait_seconds` the request is held until the row changes through any
    controller (200), the group is removed (404), or the wait times out (304). With `wait_seconds`
    alone it is held until the group exists.
    """
    known = known_versions(if_none_match)
    group = await arbiter.get(broker_name, known, wait_seconds, leaving)
    is_known = known is None or group.version in known
    return tagged_answer(None if is_known else group.model_dump_json(), _tag_of(group))


@router.put(
    "/{broker_name}",
    operation_id="putBrokerGroup",
    needs=to(Right.ADMINISTER, broker=in_path("broker_name")),
    summary="Create a broker group, or change it if it has the version that was read",
    response_model=BrokerGroupView,
    responses={
        **answer(examples.VIEW, headers=_ETAG),
        **answer(
            examples.VIEW,
            201,
            model=BrokerGroupView,
            description="The group was created",
            headers=_ETAG,
        ),
        **problems(
            PreconditionRequiredError,
            PreconditionFailedError,
            StaleEpochError,
            ConflictError,
            OverloadedError,
            ArbiterUnavailableError,
        ),
    },
)
async def put_broker_group(
    broker_name: Name,
    group: Annotated[BrokerGroupPut, Body(examples=[examples.GROUP])],
    arbiter: Part[Arbiter],
    *,
    if_match: IfMatch = None,
    if_none_match: Annotated[
        str | None, Header(max_length=TAGS_SIZE_MAX, description="`*`: create the group")
    ] = None,
) -> Response:
    """Replace the group's row, and add the change to its history.

    Send the `ETag` of the version from which the change was made as `If-Match`. If the group has
    another version by then, the answer is 412 with the current one. Weak tags are refused, because
    they stand for more than one version. `If-None-Match: *` creates the group.

    The epoch must not decrease (409 `stale-epoch`), and only a new epoch may have another master
    (409 `conflict`). The row is durable in the store when the answer is sent. If there was no
    answer, repeat the request unchanged.
    """
    condition = condition_of(if_match, if_none_match)
    stored, is_created = await arbiter.put(broker_name, condition, group)
    status = HTTPStatus.CREATED if is_created else HTTPStatus.OK
    return tagged_answer(stored.model_dump_json(), _tag_of(stored), status=status)


@router.delete(
    "/{broker_name}",
    operation_id="deleteBrokerGroup",
    needs=to(Right.ADMINISTER, broker=in_path("broker_name")),
    summary="Remove a broker group",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        BrokerGroupNotFoundError,
        PreconditionRequiredError,
        PreconditionFailedError,
        ArbiterUnavailableError,
    ),
)
async def delete_broker_group(
    broker_name: Name,
    arbiter: Part[Arbiter],
    *,
    by: Annotated[Author | None, Query()] = None,
    reason: Annotated[Reason | None, Query()] = None,
    if_match: IfMatch = None,
) -> None:
    """Remove the group if it has the version of `If-Match`. Its history stays.

    Stop its brokers first: a broker that still runs creates the group again.
    """
    await arbiter.remove(broker_name, condition_of(if_match), by, reason)


@router.get(
    "/{broker_name}/history",
    operation_id="getBrokerGroupHistory",
    needs=see(broker=in_path("broker_name")),
    summary="List the changes of a broker group",
    responses=answer(examples.HISTORY)
    | problems(BrokerGroupNotFoundError, ArbiterUnavailableError),
)
async def get_broker_group_history(
    broker_name: Name,
    arbiter: Part[Arbiter],
    *,
    limit: Limit = LIST_LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> BrokerGroupHistory:
    """Return who changed the group, when and why, the newest change first.

    The history also has the changes before the group was removed and created again.
    """
    rows = await arbiter.history(broker_name, before=number_of(cursor), count_max=limit + 1)
    has_more = len(rows) > limit
    rows = rows[:limit]
    return BrokerGroupHistory(
        broker_name=broker_name,
        changes=[row.change() for row in rows],
        next_cursor=encode_cursor(str(rows[-1].number)) if has_more else None,
    )


def number_of(cursor: str | None) -> int | None:
    """Return the number in a cursor of a history; None: from the newest one on."""
    text = decode_cursor(cursor)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ValidationError.at("/query/cursor", "invalid cursor; use next_cursor of this list")
    return int(text)


def _tag_of(group: BrokerGroupView) -> str:
    return f'"{group.version}"'
