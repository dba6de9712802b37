"""Transactions that are not over, and the history of each transaction."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from eruca.contract.errors import TransactionNotFoundError, ValidationError
from eruca.contract.fields import GroupName
from eruca.contract.limits import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from eruca.contract.transactions import TransactionDetail, TransactionId, TransactionList
from eruca_broker.api.examples import transactions as examples
from eruca_broker.processors.transactions.views import TransactionViews
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.parts import Part
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor

router = APIRouter(prefix="/v1/transactions", tags=["transactions"])


@router.get(
    "",
    operation_id="listTransactions",
    summary="List transactions that are not over",
    responses=answer(examples.LIST),
)
async def list_transactions(
    views: Part[TransactionViews],
    *,
    state: Annotated[
        Literal["pending", "parked"] | None,
        Query(description="`parked`: expired, and waiting for an operator"),
    ] = None,
    producer_group: Annotated[GroupName | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=LIST_LIMIT_MAX)] = LIST_LIMIT_DEFAULT,
    cursor: Annotated[
        str | None,
        Query(max_length=512, description="the preceding page's `next_cursor`; opaque"),
    ] = None,
) -> TransactionList:
    """Return this broker's pending and parked transactions, oldest first, page by page.

    Follow `next_cursor` until it is null. Transactions that are decided meanwhile are omitted. A
    transaction that is over is found by its id, as long as the log contains its decision.
    """
    page, following = views.page(
        state=state, producer_group=producer_group, limit=limit, after=_decoded(cursor)
    )
    next_cursor = None if following is None else encode_cursor(str(following))
    return page.model_copy(update={"next_cursor": next_cursor})


@router.get(
    "/{transaction_id}",
    operation_id="getTransaction",
    summary="Show a transaction",
    responses=answer(examples.DETAIL) | problems(TransactionNotFoundError),
)
async def get_transaction(
    transaction_id: Annotated[TransactionId, Path()], views: Part[TransactionViews]
) -> TransactionDetail:
    """Return a transaction with its message and its history, oldest event first.

    A transaction that is over is found as long as the log contains its decision. `half_log_offset`
    and `message` are null if retention has deleted the half message.
    """
    return views.get(transaction_id)


def _decoded(cursor: str | None) -> int | None:
    text = decode_cursor(cursor)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        detail = "expected a next_cursor of this list"
        raise ValidationError.at("/query/cursor", detail)
    return int(text)
