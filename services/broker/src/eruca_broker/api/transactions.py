"""Transactions beside the hot path: looking at them, and the checker's requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from fastapi import APIRouter, Body, Path, Query, Response

from eruca.contract.errors import (
    AlreadyDecidedError,
    CheckOutOfTurnError,
    TransactionNotFoundError,
    ValidationError,
)
from eruca.contract.fields import GroupName
from eruca.contract.limits import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from eruca.contract.transactions import (
    CheckGrant,
    CheckRequest,
    ExpireRequest,
    TransactionDetail,
    TransactionId,
    TransactionList,
)
from eruca_broker.api.dependencies import TheBroker
from eruca_broker.api.examples import transactions as examples
from eruca_broker.api.negotiation import JSON_MEDIA_TYPE
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_chassis.documents.nulls import with_nulls
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor

router = APIRouter(prefix="/v1/transactions", tags=["transactions"])
Id = Annotated[TransactionId, Path()]
_T = TypeVar("_T")
_ENCODER: Final = msgspec.json.Encoder()
_PARKED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Parked; `repeated` where it was before.",
        "content": {
            JSON_MEDIA_TYPE: {
                "schema": {"$ref": "#/components/schemas/DecisionReceipt"},
                "example": with_nulls(examples.PARKED),
            }
        },
    }
}


@router.get(
    "",
    operation_id="listTransactions",
    summary="List transactions that are not over",
    responses=answer(examples.LIST),
)
async def list_transactions(
    broker: TheBroker,
    *,
    state: Annotated[
        Literal["pending", "parked"] | None,
        Query(description="`parked`: given up on, and waiting for an operator"),
    ] = None,
    producer_group: Annotated[GroupName | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=LIST_LIMIT_MAX)] = LIST_LIMIT_DEFAULT,
    cursor: Annotated[
        str | None,
        Query(max_length=512, description="`next_cursor` of the page before; opaque"),
    ] = None,
) -> TransactionList:
    """Return this broker's pending and parked transactions, oldest first, a page at a time.

    Follow `next_cursor` until it is null. What is decided meanwhile is left out. A transaction that
    is over is found by its id, for as long as the log remembers it.
    """
    page, following = broker.transaction_views.page(
        state=state, producer_group=producer_group, limit=limit, after=_decoded(cursor)
    )
    next_cursor = None if following is None else encode_cursor(str(following))
    return page.model_copy(update={"next_cursor": next_cursor})


@router.get(
    "/{transaction_id}",
    operation_id="getTransaction",
    summary="Look at a transaction",
    responses=answer(examples.DETAIL) | problems(TransactionNotFoundError),
)
async def get_transaction(transaction_id: Id, broker: TheBroker) -> TransactionDetail:
    """Return a transaction with its message and everything that happened to it, oldest first.

    Also one that is over, as long as the log remembers its decision. `half_log_offset` and
    `message` are null where retention has deleted the half message.
    """
    return broker.transaction_views.get(transaction_id)


@router.post(
    "/{transaction_id}:check",
    operation_id="checkTransaction",
    summary="Be granted a check",
    responses=answer(examples.CHECK_GRANT)
    | problems(TransactionNotFoundError, AlreadyDecidedError, CheckOutOfTurnError, *WRITE_REFUSALS),
)
async def check_transaction(
    transaction_id: Id,
    request: Annotated[CheckRequest, Body(examples=[examples.CHECK])],
    broker: TheBroker,
) -> CheckGrant:
    """Record that this checker asks the producer group now; for transaction checkers.

    `number` is one more than there have been checks. Of two checkers that want to send the same
    one only the first is granted it, the other gets 409 `check-out-of-turn`: so no check is sent
    twice. 409 `already-decided` says that none is needed any more.
    """
    return await _told(partial(broker.transactions.check, transaction_id, request))


@router.post(
    "/{transaction_id}:expire",
    operation_id="expireTransaction",
    summary="Give up on a transaction",
    status_code=HTTPStatus.OK,
    response_class=Response,
    responses=_PARKED
    | problems(TransactionNotFoundError, AlreadyDecidedError, CheckOutOfTurnError, *WRITE_REFUSALS),
)
async def expire_transaction(
    transaction_id: Id,
    request: Annotated[ExpireRequest, Body(examples=[examples.EXPIRE])],
    broker: TheBroker,
) -> Response:
    """Roll back a transaction that nobody decided, and park it; for transaction checkers.

    Its half message is stored in `TRANS_CHECK_MAX_TIME_TOPIC`, in one write with the decision. An
    operator sees it with `state=parked`, and commits or discards it with `:commit` and `:rollback`,
    giving a reason. 409 where it has been checked another number of times than `checks`.
    """
    receipt = await _told(partial(broker.transactions.expire, transaction_id, request))
    return Response(_ENCODER.encode(receipt), media_type=JSON_MEDIA_TYPE)


async def _told(begin: Callable[[Callable[[_T | Exception], None]], None]) -> _T:
    """Return what *begin* is told in the end; raise it where that is an exception."""
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

    def settle(outcome: _T | Exception) -> None:
        if future.done():  # whoever waited has left
            return
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    begin(settle)
    return await future


def _decoded(cursor: str | None) -> int | None:
    text = decode_cursor(cursor)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        detail = "not a cursor that this list gave as next_cursor"
        raise ValidationError.at("/query/cursor", detail)
    return int(text)
