"""Consumer groups: create, change, show, list, delete."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Body, Path, Query, Response

from eruca.contract.access import Right
from eruca.contract.errors import (
    ConflictError,
    GroupNotFoundError,
    OverloadedError,
    PermissionDeniedError,
)
from eruca.contract.fields import GroupName
from eruca.contract.groups import GroupConfig, GroupLagList, GroupList, GroupSettings
from eruca.contract.limits import LIST_LIMIT_DEFAULT
from eruca_access.needs import on_group, see, to
from eruca_broker.api.examples import groups as group_examples
from eruca_broker.api.parameters import PageCursor, PageLimit
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.processors.groups.groups import Groups
from eruca_broker.processors.groups.offsets import PositionsOfGroups
from eruca_broker.processors.replication.absence import Absence
from eruca_chassis.admission.gate import CallersAccess
from eruca_chassis.admission.needs import KNOWN, in_path
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router

router = Router(prefix="/v1/groups", tags=["groups"])
lags_router = Router(prefix="/v1/group-lags", tags=["offsets"])

_CREATED: Final = answer(
    group_examples.NEW_GROUP,
    HTTPStatus.CREATED,
    model=GroupConfig,
    description="The group is new.",
)
Group = Annotated[GroupName, Path()]
SystemGroups = Annotated[bool, Query(description="include the system's own groups")]


@router.put(
    "/{group}",
    operation_id="putGroup",
    needs=to(Right.ADMINISTER, group=in_path("group")),
    summary="Create a group or change its settings",
    response_description="The group existed, and has these settings now.",
    responses=_CREATED
    | answer(group_examples.GROUP)
    | problems(PermissionDeniedError, ConflictError, OverloadedError, *WRITE_REFUSALS),
)
async def put_group(
    group: Group,
    settings: Annotated[GroupSettings, Body(examples=[group_examples.GROUP_SETTINGS])],
    groups: Part[Groups],
    response: Response,
) -> GroupConfig:
    """Create the group (201), or change the named settings of an existing group (200).

    Settings that are not named stay unchanged; a new group has the defaults. The answer comes once
    the change is durable. `start` applies to topics that the group meets from now on. You need not
    create a group: the first member that joins creates it, unless `ERUCA_BROKER_AUTO_CREATE_GROUPS`
    is false.
    """
    config, is_new = await groups.put(group, settings)
    if is_new:
        response.status_code = HTTPStatus.CREATED
    return config


@router.get(
    "/{group}",
    operation_id="getGroup",
    needs=see(group=in_path("group")),
    summary="Show a group",
    responses=answer(group_examples.GROUP) | problems(GroupNotFoundError),
)
async def get_group(group: Group, groups: Part[Groups]) -> GroupConfig:
    """Return the group's settings on this broker; other brokers may have other settings."""
    return groups.config(group)


@router.delete(
    "/{group}",
    operation_id="deleteGroup",
    needs=to(Right.ADMINISTER, group=in_path("group")),
    summary="Delete a group",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(GroupNotFoundError, PermissionDeniedError, ConflictError, *WRITE_REFUSALS),
)
async def delete_group(group: Group, groups: Part[Groups]) -> None:
    """Delete the group on this broker, with its locks, its offsets and its retry topic, for good.

    A group with live members is not deleted (409). Its dead letters stay. A later group of the same
    name starts without any of this.
    """
    await groups.delete(group)


@router.get(
    "",
    operation_id="listGroups",
    needs=KNOWN,
    summary="List groups",
    responses=answer(group_examples.GROUP_LIST),
)
async def list_groups(
    groups: Part[Groups],
    access: CallersAccess,
    *,
    limit: PageLimit = LIST_LIMIT_DEFAULT,
    cursor: PageCursor = None,
    include_system: SystemGroups = False,
) -> GroupList:
    """Return this broker's groups by name, page by page; follow `next_cursor` until it is null.

    Only groups on which the caller has a right are listed.
    """
    found, following = groups.page(
        after=decode_cursor(cursor),
        limit=limit,
        include_system=include_system,
        sees=None if access.is_open else lambda group: access.may(on_group(group)),
    )
    return GroupList(
        groups=found, next_cursor=None if following is None else encode_cursor(following)
    )


@lags_router.get(
    "",
    operation_id="listGroupLags",
    needs=KNOWN,
    summary="List groups' lags",
    responses=answer(group_examples.GROUP_LAG_LIST),
)
async def list_group_lags(
    groups: Part[Groups],
    positions: Part[PositionsOfGroups],
    absence: Part[Absence],
    access: CallersAccess,
    *,
    limit: PageLimit = LIST_LIMIT_DEFAULT,
    cursor: PageCursor = None,
    include_system: SystemGroups = False,
) -> GroupLagList:
    """Return the lag of each group on this broker by name, page by page.

    The pages are those of `listGroups`. A lag is the total of `getGroupOffsets`. If a queue of a
    group cannot be read now, the lag of that group alone is unknown. Groups are read one after
    another, so their lags are not of the same moment.
    """
    names, following = groups.names(
        after=decode_cursor(cursor),
        limit=limit,
        include_system=include_system,
        sees=None if access.is_open else lambda group: access.may(on_group(group)),
    )
    absence.check(is_found=bool(names))
    return GroupLagList(
        lags=await positions.totals(names),
        next_cursor=None if following is None else encode_cursor(following),
    )
