"""The policy: who may do what, for services that follow it and people who change it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Body, Header, Path, Query, Request
from fastapi.responses import Response

from eruca.contract.access import Right
from eruca.contract.broker_groups import GroupWaitSeconds
from eruca.contract.errors import (
    ArbiterUnavailableError,
    ConflictError,
    NotFoundError,
    OverloadedError,
    PreconditionFailedError,
    PreconditionRequiredError,
)
from eruca.contract.fields import OFFSET_MAX
from eruca.contract.limits import CURSOR_SIZE_MAX
from eruca.contract.policies import (
    POLICY_NUMBER_MAX,
    PolicyHistory,
    PolicyPreview,
    PolicyPut,
    PolicyView,
)
from eruca_access.needs import to
from eruca_access.tokens import TokenHolder
from eruca_chassis.admission.gate import CallersAccess, address_of
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import encode_cursor
from eruca_chassis.requests.entity_tags import tagged_answer
from eruca_chassis.routes.direct_reads import Leaving
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_controller.api import examples
from eruca_controller.api.broker_groups import number_of
from eruca_controller.core.conditions import TAGS_SIZE_MAX, condition_of, known_versions
from eruca_controller.core.policies import PolicyRow
from eruca_controller.policy_keeper import Author, PolicyKeeper

router = Router(prefix="/v1/policy", tags=["policy"])

HISTORY_LIMIT_DEFAULT: Final = 10
HISTORY_LIMIT_MAX: Final = 50  # each version may have a megabyte in the store
_ETAG: Final[dict[str, Any]] = {
    "ETag": {
        "description": "the policy's version in double quotes",
        "schema": {"type": "string"},
        "example": f'"{examples.VERSION}"',
    }
}
_Change = Annotated[PolicyPut, Body(examples=[examples.POLICY_PUT])]


@router.get(
    "",
    operation_id="getPolicy",
    needs=to(Right.QUERY, cluster=True),
    summary="Get the policy, or wait for its next version",
    response_model=PolicyView,
    responses={
        **answer(examples.POLICY_VIEW, headers=_ETAG),
        304: {"description": "The policy still has the ETag of If-None-Match", "headers": _ETAG},
        **problems(NotFoundError, ConflictError, OverloadedError, ArbiterUnavailableError),
    },
)
async def get_policy(
    keeper: Part[PolicyKeeper],
    leaving: Leaving,
    *,
    wait_seconds: GroupWaitSeconds = 0,
    if_none_match: Annotated[
        str | None,
        Header(max_length=TAGS_SIZE_MAX, description="ETags of versions the client knows"),
    ] = None,
) -> Response:
    """Return the policy, and its version as the `ETag`.

    With `If-None-Match` and `wait_seconds` the request is held until the policy changes through any
    controller (200), or the wait times out (304). Keys are in it as digests only.
    """
    known = known_versions(if_none_match)
    row = await keeper.get(known, wait_seconds, leaving)
    is_known = known is None or row.version in known
    return tagged_answer(None if is_known else _body_of(row), _tag_of(row))


@router.put(
    "",
    operation_id="putPolicy",
    needs=to(Right.ADMINISTER, cluster=True),
    summary="Replace the policy if it has the version that was read",
    response_model=PolicyView,
    responses={
        **answer(examples.POLICY_VIEW, headers=_ETAG),
        **answer(
            examples.POLICY_VIEW,
            201,
            model=PolicyView,
            description="The first policy was stored",
            headers=_ETAG,
        ),
        **problems(
            PreconditionRequiredError,
            PreconditionFailedError,
            ConflictError,
            ArbiterUnavailableError,
        ),
    },
)
async def put_policy(
    change: _Change,
    keeper: Part[PolicyKeeper],
    access: CallersAccess,
    request: Request,
    *,
    above: Annotated[
        int,
        Query(
            ge=0,
            le=POLICY_NUMBER_MAX,
            description="the new number is greater than this one: after the store was restored "
            "from an older copy, the number that services have",
        ),
    ] = 0,
    if_match: Annotated[
        str | None,
        Header(
            max_length=TAGS_SIZE_MAX,
            description="the ETag of the version to replace; `*`: any",
            examples=[f'"{examples.VERSION}"'],
        ),
    ] = None,
    if_none_match: Annotated[
        str | None, Header(max_length=TAGS_SIZE_MAX, description="`*`: store the first policy")
    ] = None,
) -> Response:
    """Replace roles, rules and keys as a whole, and add the change to the history.

    Send the `ETag` of the version from which the change was made as `If-Match`. If there is another
    version by then, the answer is 412. A change that takes the caller's own right to change the
    policy, or its last key, is 409. If there was no answer, repeat the request unchanged.

    Services that follow the controllers apply the change within two seconds.
    """
    condition = condition_of(if_match, if_none_match)
    row = await keeper.put(condition, change, _author(access, request), above=above)
    status = HTTPStatus.CREATED if condition.creates else HTTPStatus.OK
    return tagged_answer(_body_of(row), _tag_of(row), status=status)


@router.post(
    ":preview",
    operation_id="previewPolicy",
    needs=to(Right.ADMINISTER, cluster=True),
    summary="Show what a change of the policy would do",
    responses=answer(examples.POLICY_PREVIEW) | problems(ConflictError, ArbiterUnavailableError),
)
async def preview_policy(
    change: _Change, keeper: Part[PolicyKeeper], access: CallersAccess, request: Request
) -> PolicyPreview:
    """Return which rights principals would gain and lose, and which keys. Change nothing."""
    version, locks_out, effect = await keeper.preview(change.policy, _author(access, request))
    return PolicyPreview(version=version, locks_out=locks_out, differences=effect)


@router.get(
    "/history",
    operation_id="getPolicyHistory",
    needs=to(Right.QUERY, cluster=True),
    summary="List the changes of the policy",
    responses=answer(examples.POLICY_HISTORY) | problems(ConflictError, ArbiterUnavailableError),
)
async def get_policy_history(
    keeper: Part[PolicyKeeper],
    *,
    limit: Annotated[int, Query(ge=1, le=HISTORY_LIMIT_MAX)] = HISTORY_LIMIT_DEFAULT,
    cursor: Annotated[str | None, Query(max_length=CURSOR_SIZE_MAX)] = None,
) -> PolicyHistory:
    """Return who changed the policy, when, why, and what that did, the newest change first."""
    rows = await keeper.history(before=number_of(cursor), count_max=limit + 1)
    has_more = len(rows) > limit
    rows = rows[:limit]
    return PolicyHistory(
        changes=[row.change() for row in rows],
        next_cursor=encode_cursor(str(rows[-1].number)) if has_more else None,
    )


@router.get(
    "/versions/{number}",
    operation_id="getPolicyVersion",
    needs=to(Right.QUERY, cluster=True),
    summary="Get one version of the policy",
    responses=answer(examples.POLICY_VIEW)
    | problems(NotFoundError, ConflictError, ArbiterUnavailableError),
)
async def get_policy_version(
    keeper: Part[PolicyKeeper],
    number: Annotated[
        int, Path(ge=1, le=OFFSET_MAX - 1, description="number of the change", examples=[12])
    ],
) -> PolicyView:
    """Return the policy as a change left it, to compare it with another or to go back to it."""
    return (await keeper.version(number)).view()


def _author(access: CallersAccess, request: Request) -> Author:
    # Without a gate there is no caller, and the keeper refuses.
    caller = None if access.admission is None else access.admission.caller
    roles = caller.roles if isinstance(caller, TokenHolder) else ()
    return Author(access.name or "", address_of(request.scope["client"]), roles)


def _body_of(row: PolicyRow) -> str:
    return row.view().model_dump_json(by_alias=True)


def _tag_of(row: PolicyRow) -> str:
    return f'"{row.version}"'
