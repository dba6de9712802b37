"""Transactions that are not over, and the history of each transaction."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query

from eruca.contract.errors import OverloadedError, TransactionNotFoundError, ValidationError
from eruca.contract.fields import GroupName
from eruca.contract.limits import LIST_LIMIT_DEFAULT
from eruca.contract.transactions import (
    TransactionAsOf,
    TransactionDetail,
    TransactionId,
    TransactionList,
)
from eruca_access.needs import on_topic, see
from eruca_broker.api.examples import transactions as examples
from eruca_broker.api.parameters import PageCursor, PageLimit, PastOffset
from eruca_broker.api.transactions.rights import require_sight
from eruca_broker.processors.replication.absence import Absence
from eruca_broker.processors.transactions.views import Owner, TransactionViews
from eruca_chassis.admission.gate import CallersAccess
from eruca_chassis.admission.needs import found, in_query
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router

router = Router(prefix="/v1/transactions", tags=["transactions"])


@router.get(
    "",
    operation_id="listTransactions",
    needs=see(group=in_query("producer_group")),
    summary="List transactions that are not over",
    responses=answer(examples.LIST),
)
async def list_transactions(
    views: Part[TransactionViews],
    absence: Part[Absence],
    access: CallersAccess,
    *,
    state: Annotated[
        Literal["pending", "parked"] | None,
        Query(description="`parked`: expired, and waiting for an operator"),
    ] = None,
    producer_group: Annotated[GroupName | None, Query()] = None,
    limit: PageLimit = LIST_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> TransactionList:
    """Return this broker's pending and parked transactions, oldest first, page by page.

    Follow `next_cursor` until it is null. Transactions that are decided meanwhile are omitted. A
    transaction that is over is found by its id, as long as the log contains its decision.
    """
    page, following = views.page(
        state=state, producer_group=producer_group, limit=limit, after=_decoded(cursor)
    )
    absence.check(is_found=bool(page.transactions) or following is not None)
    if not access.is_open:
        seen = [t for t in page.transactions if access.may(on_topic(t.topic))]
        page = page.model_copy(update={"transactions": seen})
    next_cursor = None if following is None else encode_cursor(str(following))
    return page.model_copy(update={"next_cursor": next_cursor})


@router.get(
    "/{transaction_id}",
    operation_id="getTransaction",
    needs=see(topic=found("topic")),
    summary="Show a transaction",
    responses=answer(examples.DETAIL) | problems(TransactionNotFoundError),
)
async def get_transaction(
    transaction_id: Annotated[TransactionId, Path()],
    views: Part[TransactionViews],
    access: CallersAccess,
) -> TransactionDetail:
    """Return a transaction with its message and its history, oldest event first.

    A transaction that is over is found as long as the log contains its decision. `half_log_offset`
    and `message` are null if retention has deleted the half message.
    """
    transaction = views.get(transaction_id)
    if not access.is_open:
        owner = Owner(transaction_id, transaction.topic, transaction.producer_group)
        require_sight(access, owner)
    return transaction


@router.get(
    "/{transaction_id}/as-of",
    operation_id="getTransactionAsOf",
    needs=see(topic=found("topic")),
    summary="Show the state of a transaction as of an earlier log offset",
    responses=answer(examples.AS_OF) | problems(TransactionNotFoundError, OverloadedError),
)
async def get_transaction_as_of(
    transaction_id: Annotated[TransactionId, Path()],
    views: Part[TransactionViews],
    access: CallersAccess,
    log_offset: PastOffset,
) -> TransactionAsOf:
    """Return the state that the transaction had, from this broker's log alone.

    If the log does not have all that the state depends on, `unknown` says why.
    """
    if not access.is_open:
        require_sight(access, views.owner(transaction_id))
    return await views.as_of(transaction_id, log_offset)


def _decoded(cursor: str | None) -> int | None:
    text = decode_cursor(cursor)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        detail = "expected a next_cursor of this list"
        raise ValidationError.at("/query/cursor", detail)
    return int(text)
