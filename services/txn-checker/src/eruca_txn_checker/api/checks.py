"""Checks: wait for them, and answer them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Path, Query, Request

from eruca.contract.access import Right
from eruca.contract.errors import (
    AlreadyDecidedError,
    BrokerUnreachableError,
    CheckNotFoundError,
    CheckOutOfTurnError,
    DatabaseUnavailableError,
    OverloadedError,
    TopicNotFoundError,
    TransactionNotFoundError,
)
from eruca.contract.fields import GroupName, WaitSeconds
from eruca.contract.groups import ClientId
from eruca.contract.transactions import (
    CheckAnswer,
    CheckCount,
    CheckId,
    CheckOutcome,
    ProducerChecks,
)
from eruca_access.needs import on_group, to
from eruca_chassis.admission.gate import CallersAccess
from eruca_chassis.admission.needs import found, in_path
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_txn_checker.api import examples
from eruca_txn_checker.checking.answers import Answers
from eruca_txn_checker.checking.producers import Producers
from eruca_txn_checker.projection.check_rows import KnownCheck

router = Router(prefix="/v1", tags=["checks"])


# Taking a check starts its time limit. So it is not a GET: pages of any site may send those.
@router.post(
    "/producer-groups/{producer_group}/checks",
    operation_id="takeChecks",
    needs=to(Right.PRODUCE, group=in_path("producer_group")),
    summary="Wait for checks",
    responses=answer(examples.CHECKS) | problems(OverloadedError, DatabaseUnavailableError),
)
async def take_checks(
    producer_group: Annotated[GroupName, Path(examples=["orders"])],
    producers: Part[Producers],
    request: Request,
    *,
    client_id: Annotated[
        ClientId | None,
        Query(
            description="The producer's name; shown with the check and its answer.",
            examples=["10.1.2.3@4711#1"],
        ),
    ] = None,
    count_max: Annotated[
        CheckCount, Query(description="maximum number of checks in one answer, if not too large")
    ] = 1,
    wait_seconds: Annotated[WaitSeconds, Query(examples=[20])] = 0,
) -> ProducerChecks:
    """Return checks of the group's transactions; each goes to this producer alone.

    The request is held for up to `wait_seconds` until there is one. If several producers wait, they
    are asked in turn. Answer each check by its `check_id`. A check that is not answered by
    `answer_until` counts as unanswered, and another producer may be asked. A group with a webhook
    gets no checks here.
    """
    peer = "unknown" if request.client is None else f"{request.client.host}:{request.client.port}"
    checks = await producers.take(
        producer_group,
        client_id or peer,
        count_max=count_max,
        wait_seconds=wait_seconds,
        receive=request.receive,
    )
    return ProducerChecks(checks=checks)


@router.post(
    "/checks/{check_id}",
    operation_id="answerCheck",
    needs=to(Right.PRODUCE, group=found("producer_group")),
    summary="Answer a check",
    responses=answer(examples.OUTCOME)
    | problems(
        CheckNotFoundError,
        TransactionNotFoundError,
        TopicNotFoundError,
        AlreadyDecidedError,
        CheckOutOfTurnError,
        DatabaseUnavailableError,
        BrokerUnreachableError,
    ),
)
async def answer_check(
    check_id: Annotated[CheckId, Path(examples=[examples.CHECK["check_id"]])],
    given: Annotated[
        CheckAnswer,
        Body(
            openapi_examples={
                "commit": {"value": examples.COMMIT},
                "rollback": {"value": examples.ROLLBACK},
                "unknown": {"value": examples.UNKNOWN},
            }
        ),
    ],
    answers: Part[Answers],
    access: CallersAccess,
) -> CheckOutcome:
    """Answer a check with the transaction's outcome; `unknown` if it is not certain yet.

    Commit and rollback are forwarded to the broker, and the response is its decision. 409
    `already-decided` means that the opposite was decided before; it says by whom and when. An
    answer counts even after `answer_until`, and may be repeated. If the broker is unreachable, the
    response is 503. The answer is stored all the same, and reaches the broker before another check
    is sent.
    """

    def require(check: KnownCheck) -> None:
        if not access.may(on_group(check.producer_group)):
            raise CheckNotFoundError(f"check {check_id!r} not found; it may have been deleted")
        access.require(on_group(check.producer_group, Right.PRODUCE))

    return await answers.take(check_id, given, None if access.is_open else require)
