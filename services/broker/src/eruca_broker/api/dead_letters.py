"""Dead letters: list, show, and redrive them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Path, Query

from eruca.contract.access import Right
from eruca.contract.errors import (
    DeadLetterNotFoundError,
    GroupNotFoundError,
    OverloadedError,
    ValidationError,
)
from eruca.contract.fields import GroupName, Moment, Offset, TopicName
from eruca.contract.limits import LIST_LIMIT_DEFAULT
from eruca.contract.retries import (
    DeadLetterDetail,
    DeadLetterFilter,
    DeadLetterList,
    Redrive,
    RedriveAnswer,
    RetryReason,
)
from eruca_access.needs import on_topic, to
from eruca_broker.api.examples import later as examples
from eruca_broker.api.parameters import PageCursor, PageLimit
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.processors.dead_letters import DeadLetters, Stretch
from eruca_broker.processors.replication.absence import Absence
from eruca_chassis.admission.gate import CallersAccess
from eruca_chassis.admission.needs import found, in_path
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor
from eruca_chassis.requests.time_ranges import check_order
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router

router = Router(prefix="/v1/groups", tags=["dead letters"])
Group = Annotated[GroupName, Path()]


@router.get(
    "/{group}/dead-letters",
    operation_id="listDeadLetters",
    needs=to(Right.CONSUME, Right.QUERY, Right.ADMINISTER, group=in_path("group")),
    summary="List a group's dead letters",
    responses=answer(examples.DEAD_LETTER_LIST) | problems(GroupNotFoundError),
)
async def list_dead_letters(
    group: Group,
    dead_letters: Part[DeadLetters],
    absence: Part[Absence],
    *,
    topic: Annotated[
        TopicName | None, Query(description="only letters with this topic of origin")
    ] = None,
    reason: Annotated[RetryReason | None, Query()] = None,
    since: Annotated[
        Moment | None,
        Query(description="only letters that became dead at this time or later"),
    ] = None,
    until: Annotated[
        Moment | None, Query(description="only letters that became dead before this time")
    ] = None,
    limit: PageLimit = LIST_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> DeadLetterList:
    """Return the group's dead letters on this broker, oldest first, page by page.

    Follow `next_cursor` until it is null. Before that, a page may be short or empty: because of
    filters, or because letters had to be fetched from the tier. The list ends where the dead
    letters ended when its first page was requested. A redriven dead letter stays in the list, with
    `redriven_at`, until retention deletes its segment.
    """
    check_order(since, until, pointer="/query/since")
    chosen = DeadLetterFilter.model_validate(
        {"topic": topic, "reason": reason, "since": since, "until": until}
    )
    stretch = _stretch(dead_letters, absence, group, cursor, "/query/cursor")
    page, following = await dead_letters.page(group, chosen, stretch, limit=limit)
    absence.check(is_found=bool(page.dead_letters) or following is not None)
    return page.model_copy(update={"next_cursor": _cursor(following)})


@router.get(
    "/{group}/dead-letters/{dead_letter_id}",
    operation_id="getDeadLetter",
    needs=to(Right.CONSUME, Right.QUERY, Right.ADMINISTER, group=in_path("group")),
    summary="Show a dead letter",
    responses=answer(examples.DEAD_LETTER_DETAIL)
    | problems(GroupNotFoundError, DeadLetterNotFoundError),
)
async def get_dead_letter(
    group: Group,
    dead_letter_id: Annotated[Offset, Path(examples=[examples.DEAD_LETTER["dead_letter_id"]])],
    dead_letters: Part[DeadLetters],
) -> DeadLetterDetail:
    """Return a dead letter with its message, in the form of a pull."""
    return await dead_letters.get(group, dead_letter_id)


@router.post(
    "/{group}/dead-letters:redrive",
    operation_id="redriveDeadLetters",
    needs=to(Right.ADMINISTER, group=in_path("group"))
    & to(Right.PRODUCE, Right.ADMINISTER, topic=found("origin_topic")),
    summary="Redrive dead letters",
    responses=answer(examples.REDRIVE_ANSWER)
    | problems(GroupNotFoundError, OverloadedError, *WRITE_REFUSALS),
)
async def redrive_dead_letters(
    group: Group,
    request: Annotated[Redrive, Body(examples=[examples.REDRIVE])],
    dead_letters: Part[DeadLetters],
    absence: Part[Absence],
    access: CallersAccess,
) -> RedriveAnswer:
    """Send dead letters to their topics of origin as new messages; all groups receive them there.

    The caller must be allowed to send there, or to administer these topics; otherwise nothing is
    sent. Letters keep their unique id, and lose the record of their attempts. A letter that was
    redriven before, or whose topic no longer exists, is skipped. The letters of one request are
    sent as one, and are durable when the answer arrives. With a filter, follow `next_cursor` until
    it is null: pages are small, so that consumers are not flooded. The redrive ends where the dead
    letters ended at the first request. `before_id` sets that end for several brokers at once.
    `dry_run` only shows what would happen.
    """
    if request.filter is not None:
        check_order(request.filter.since, request.filter.until, pointer="/body/filter/since")
    stretch = _stretch(dead_letters, absence, group, request.cursor, "/body/cursor")
    if request.before_id is not None:
        end = request.before_id if stretch.end is None else min(stretch.end, request.before_id)
        stretch = stretch._replace(end=end)
    answer, following = await dead_letters.redrive(
        group,
        request,
        stretch,
        lambda topic: access.require(on_topic(topic, Right.PRODUCE, Right.ADMINISTER)),
    )
    return answer.model_copy(update={"next_cursor": _cursor(following)})


def _cursor(following: Stretch | None) -> str | None:
    return None if following is None else encode_cursor(".".join(map(str, following)))


def _stretch(
    letters: DeadLetters, absence: Absence, group: str, cursor: str | None, pointer: str
) -> Stretch:
    """Return the stretch with which a page begins.

    Raises:
        ValidationError: The cursor is not one of this list, or its letters are gone.
        NotMasterError, NotMasterForSureError: They are gone here; only the master knows.
    """
    text = decode_cursor(cursor, pointer)
    if text is None:
        return Stretch()
    parts = text.split(".")
    is_one = len(parts) == len(Stretch._fields)
    if not (is_one and all(one.isascii() and one.isdigit() and len(one) < 19 for one in parts)):
        detail = "expected a next_cursor of this list"
        raise ValidationError.at(pointer, detail)
    stretch = Stretch(*map(int, parts))
    if not letters.continues(group, stretch):
        absence.check(is_found=False)  # a standby may not have copied yet that they began
        raise ValidationError.at(
            pointer,
            "other dead letters have the ids of this cursor by now: the group's were deleted, or "
            "an unclean election has lost some of them",
            fix="begin the list again, without a cursor",
        )
    return stretch
