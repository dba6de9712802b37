"""Transactions: list them, look one up, decide one as an operator."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import Body, Path, Query, Response

from eruca.contract.access import Right
from eruca.contract.errors import (
    AlreadyDecidedError,
    BrokerNotFoundError,
    BrokerUnreachableError,
    ConflictError,
    DatabaseUnavailableError,
    TopicNotFoundError,
    TransactionNotFoundError,
    ValidationError,
)
from eruca.contract.fields import BrokerName, GroupName
from eruca.contract.limits import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from eruca.contract.transaction_events import Outcome
from eruca.contract.transactions import (
    CheckedTransaction,
    CheckedTransactionList,
    Decide,
    DecisionReceipt,
    OperatorDecision,
    TransactionId,
    TransactionState,
)
from eruca_access.needs import on_log, on_topic, see, to
from eruca_chassis.admission.gate import Access, CallersAccess
from eruca_chassis.admission.needs import found, in_query
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_postgres.database import Database
from eruca_txn_checker.api import examples
from eruca_txn_checker.checking.broker_calls import AWAY, BrokerCalls, away
from eruca_txn_checker.checking.following import followed_brokers
from eruca_txn_checker.checking.showing import shown, summary_of
from eruca_txn_checker.core.transaction_rows import TransactionRow
from eruca_txn_checker.projection.check_rows import checks_of
from eruca_txn_checker.projection.listing import Place, find_rows, page_of, place_of

router = Router(prefix="/v1/transactions", tags=["transactions"])
Id = Annotated[TransactionId, Path()]
AtBroker = Annotated[
    BrokerName | None,
    Query(description="the broker that holds it; needed if two brokers have this id"),
]
_DECISION_ERRORS: Final = problems(
    TransactionNotFoundError,
    TopicNotFoundError,
    BrokerNotFoundError,
    AlreadyDecidedError,
    ConflictError,
    DatabaseUnavailableError,
    BrokerUnreachableError,
)


def _decided(example: object) -> dict[int | str, dict[str, Any]]:
    return answer(
        example,
        model=DecisionReceipt,
        description="Decided. `repeated` is true if the same was decided before.",
    )


@router.get(
    "",
    operation_id="listTransactions",
    needs=see(group=in_query("producer_group")),
    summary="List transactions",
    responses=answer(examples.LIST) | problems(DatabaseUnavailableError),
)
async def list_transactions(
    database: Part[Database],
    access: CallersAccess,
    *,
    state: Annotated[
        TransactionState | None,
        Query(description="`parked`: rolled back after the last check, waiting for an operator"),
    ] = None,
    producer_group: Annotated[GroupName | None, Query()] = None,
    broker_name: Annotated[BrokerName | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=LIST_LIMIT_MAX)] = LIST_LIMIT_DEFAULT,
    cursor: Annotated[
        str | None,
        Query(max_length=1024, description="`next_cursor` of the previous page; opaque"),
    ] = None,
) -> CheckedTransactionList:
    """Return transactions of all brokers, oldest first, one page at a time.

    Follow `next_cursor` until it is null. `followed` gives the position reached in each broker's
    log. Decided transactions are kept for a time that is a setting, three days by default.
    """
    async with database.transaction() as connection:
        rows = await page_of(
            connection,
            state=state,
            producer_group=producer_group,
            broker_name=broker_name,
            after=_place(cursor),
            limit=limit + 1,
        )
        followed = await followed_brokers(connection)
    page = rows[:limit]
    shown_rows = [row for row in page if access.may(on_topic(row.topic))]
    return CheckedTransactionList(
        transactions=[summary_of(row) for row in shown_rows],
        next_cursor=_cursor(page[-1]) if len(rows) > limit else None,
        followed=followed,
    )


@router.get(
    "/{transaction_id}",
    operation_id="getTransaction",
    needs=see(topic=found("topic")),
    summary="Get a transaction and its checks",
    responses=answer(examples.DETAIL)
    | problems(TransactionNotFoundError, ConflictError, DatabaseUnavailableError),
)
async def get_transaction(
    transaction_id: Id,
    database: Part[Database],
    access: CallersAccess,
    *,
    broker_name: AtBroker = None,
) -> CheckedTransaction:
    """Return a transaction with each check: the producer asked, the time and the answer.

    Its broker has its message and its history in the log, at the same path.
    """
    async with database.transaction() as connection:
        rows = await find_rows(connection, transaction_id, broker_name)
        row = _one(_seen(access, rows), transaction_id)
        checks = await checks_of(connection, row.broker_name, transaction_id)
    return shown(row, checks)


@router.post(
    "/{transaction_id}:commit",
    operation_id="commitTransaction",
    needs=to(Right.ADMINISTER, topic=found("topic")),
    summary="Commit a transaction as an operator",
    response_class=Response,
    responses=_decided(examples.COMMITTED) | _DECISION_ERRORS,
)
async def commit_transaction(
    transaction_id: Id,
    given: Annotated[OperatorDecision, Body(examples=[examples.OPERATOR_COMMIT])],
    database: Part[Database],
    calls: Part[BrokerCalls],
    access: CallersAccess,
    *,
    broker_name: AtBroker = None,
) -> Response:
    """Deliver the message, even that of a parked transaction; the reason is recorded."""
    rows = await _rows(database, access, transaction_id, broker_name)
    return await _decide(calls, rows, transaction_id, broker_name, outcome="commit", given=given)


@router.post(
    "/{transaction_id}:rollback",
    operation_id="rollBackTransaction",
    needs=to(Right.ADMINISTER, topic=found("topic")),
    summary="Roll back a transaction as an operator",
    response_class=Response,
    responses=_decided(examples.ROLLED_BACK) | _DECISION_ERRORS,
)
async def roll_back_transaction(
    transaction_id: Id,
    given: Annotated[OperatorDecision, Body(examples=[examples.OPERATOR_ROLLBACK])],
    database: Part[Database],
    calls: Part[BrokerCalls],
    access: CallersAccess,
    *,
    broker_name: AtBroker = None,
) -> Response:
    """Discard the message for good, even that of a parked transaction; the reason is recorded."""
    rows = await _rows(database, access, transaction_id, broker_name)
    return await _decide(calls, rows, transaction_id, broker_name, outcome="rollback", given=given)


async def _rows(
    database: Database, access: Access, transaction_id: str, broker_name: str | None
) -> list[TransactionRow]:
    """Return the transactions with an id that the caller may decide.

    Without a row, nobody knows the transaction's topic. So the brokers are then asked only for a
    caller who may administer all transactions.
    """
    async with database.transaction() as connection:
        rows = _seen(access, await find_rows(connection, transaction_id, broker_name))
    access.require(*(on_topic(row.topic, Right.ADMINISTER) for row in rows))
    if not rows and not access.may(on_log(Right.ADMINISTER)):
        _one(rows, transaction_id)
    return rows


def _seen(access: Access, rows: list[TransactionRow]) -> list[TransactionRow]:
    return [row for row in rows if access.may(on_topic(row.topic))]


async def _decide(
    calls: BrokerCalls,
    rows: list[TransactionRow],
    transaction_id: str,
    broker_name: str | None,
    *,
    outcome: Outcome,
    given: OperatorDecision,
) -> Response:
    if broker_name is None:
        broker_name = _one(rows, transaction_id).broker_name
    request = Decide(by="operator", reason=given.reason)
    try:
        receipt = await calls.decide(broker_name, transaction_id, outcome, request)
    except BrokerNotFoundError as error:
        if not rows:  # with rows the broker exists and is only unreachable
            raise
        raise _undecided(broker_name, error) from error
    except AWAY as error:
        raise _undecided(broker_name, error) from error
    return _receipt(receipt)


def _undecided(broker_name: str, error: Exception) -> BrokerUnreachableError:
    return away(broker_name, error, then="nothing has been decided, as far as is known")


def _receipt(receipt: DecisionReceipt) -> Response:
    return Response(msgspec.json.encode(receipt), media_type="application/json")


def _one(rows: list[TransactionRow], transaction_id: str) -> TransactionRow:
    if not rows:
        raise TransactionNotFoundError(
            f"transaction {transaction_id!r} not found here; one that began a moment ago may not "
            "have been read yet, and decided ones are deleted in time",
            fix="ask its broker: GET /v1/transactions/{id} there",
        )
    if len(rows) > 1:
        brokers = ", ".join(row.broker_name for row in rows)
        raise ConflictError(
            f"several brokers have a transaction {transaction_id!r}: {brokers}",
            fix="choose one with broker_name",
        )
    return rows[0]


def _cursor(row: TransactionRow) -> str:
    return encode_cursor(" ".join(map(str, place_of(row))))


def _place(cursor: str | None) -> Place | None:
    text = decode_cursor(cursor)
    if text is None:
        return None
    begun, *names = text.split(" ")
    is_number = begun.isascii() and begun.isdigit() and len(begun) < 19
    if len(names) != 2 or not is_number or "\0" in text:  # PostgreSQL cannot store a NUL
        detail = "invalid cursor; use next_cursor of this list"
        raise ValidationError.at("/query/cursor", detail)
    return Place(int(begun), names[0], names[1])
