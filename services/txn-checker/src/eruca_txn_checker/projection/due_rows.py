"""Select the transactions that are due, and maintain their rows; one statement each."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    and_,
    any_,
    delete,
    exists,
    func,
    literal,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, TEXT
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_txn_checker.core.check_rules import CheckRules
from eruca_txn_checker.core.check_states import CheckEvent, CheckState
from eruca_txn_checker.core.next_look import Ahead
from eruca_txn_checker.core.transaction_rows import TransactionRow
from eruca_txn_checker.projection.check_columns import becomes, is_in, may
from eruca_txn_checker.projection.listing import COLUMNS
from eruca_txn_checker.projection.tables import checks, transactions


async def due_rows(
    connection: AsyncConnection,
    broker_name: str,
    *,
    now_ms: int,
    at_broker_ms: int,
    limit: int,
    without: Collection[str],
    reachable: Collection[str],
    counts_unreachable: bool,
    rules: CheckRules,
) -> list[TransactionRow]:
    """Return pending transactions that are due, the longest overdue first.

    A transaction with an answer that its broker has not confirmed is not due: the answer comes
    first. Nor is one whose last check can still be answered, however late it was read, or can still
    be sent (see :func:`open_again`).

    Args:
        connection: A transaction.
        broker_name: The broker.
        now_ms: Current time on the clock by which checks are opened.
        at_broker_ms: Current time on the broker's clock.
        limit: Maximum number of rows.
        without: Ids of transactions in progress.
        reachable: The producer groups that can be asked.
        counts_unreachable: Whether other groups are checked, too. Their transactions expire in any
            case.
        rules: The settings of checking.
    """
    is_forwarding = exists().where(
        checks.c.broker_name == broker_name,
        is_in(CheckState.FORWARDING),
        checks.c.transaction_id == transactions.c.transaction_id,
    )
    is_in_hand = exists().where(
        _is_last_check(broker_name),
        or_(
            _was_opened_lately(now_ms, rules),
            and_(is_in(CheckState.OPEN), _is_of(reachable), not_(_is_too_old(at_broker_ms, rules))),
        ),
    )
    chosen = select(*COLUMNS).where(
        *_is_due(broker_name, at_broker_ms), not_(is_forwarding), not_(is_in_hand)
    )
    if without:
        chosen = chosen.where(transactions.c.transaction_id != func.all(_texts(without)))
    if not counts_unreachable:
        chosen = chosen.where(
            or_(
                transactions.c.producer_group == any_(_texts(reachable)),
                transactions.c.checks >= rules.checks_max,
                _is_too_old(at_broker_ms, rules),
            )
        )
    found = await connection.execute(chosen.order_by(transactions.c.due_ms).limit(limit))
    return [TransactionRow(*row) for row in found]


async def open_again(
    connection: AsyncConnection,
    broker_name: str,
    *,
    now_ms: int,
    at_broker_ms: int,
    limit: int,
    reachable: Collection[str],
    rules: CheckRules,
) -> int:
    """Reopen untaken checks for another interval; return the number of transactions.

    Their producers are reachable but have more checks than they, or this service, can handle: such
    a check does not count as used. They are the oldest, so they are taken first.
    """
    untaken = (
        select(checks.c.check_id)
        .join_from(checks, transactions, _is_last_check(broker_name))
        .where(
            *_is_due(broker_name, at_broker_ms),
            not_(_is_too_old(at_broker_ms, rules)),
            may(CheckEvent.PUT_OFF),
            _is_of(reachable),
            not_(_was_opened_lately(now_ms, rules)),
        )
        .order_by(transactions.c.due_ms)
        .limit(limit)
        .with_for_update(skip_locked=True, of=checks)  # locked: being taken or closed just now
        .cte("untaken")
    )
    opened = await connection.execute(
        update(checks)
        .where(checks.c.check_id == untaken.c.check_id)
        .values(**becomes(CheckEvent.PUT_OFF), opened_ms=now_ms)
    )
    return opened.rowcount


async def ahead_of(
    connection: AsyncConnection,
    broker_name: str,
    *,
    now_ms: int,
    at_broker_ms: int,
    answered_since_ms: int,
    rules: CheckRules,
) -> Ahead:
    """Return the moments at which something of *broker_name* that is not due now falls due.

    Args:
        connection: The transaction that has found nothing due at these times.
        broker_name: The broker.
        now_ms: Current time on the clock by which checks are opened.
        at_broker_ms: Current time on the broker's clock.
        answered_since_ms: Answers older than this are already due.
        rules: The settings of checking.
    """
    is_due = _is_due(broker_name, at_broker_ms)
    is_later = (
        transactions.c.broker_name == broker_name,
        transactions.c.state == "pending",
        transactions.c.due_ms > at_broker_ms,
    )
    found = await connection.execute(
        select(
            select(func.min(transactions.c.due_ms)).where(*is_later).scalar_subquery(),
            select(func.min(transactions.c.begun_ms))
            .where(*is_due, not_(_is_too_old(at_broker_ms, rules)))
            .scalar_subquery(),
            select(func.min(checks.c.opened_ms))
            .join_from(checks, transactions, _is_last_check(broker_name))
            .where(*is_due, _was_opened_lately(now_ms, rules))
            .scalar_subquery(),
            select(func.min(checks.c.answered_ms))
            .where(
                checks.c.broker_name == broker_name,
                is_in(CheckState.FORWARDING),
                checks.c.answered_ms >= answered_since_ms,
            )
            .scalar_subquery(),
        )
    )
    return Ahead(*found.one())


def _is_due(broker_name: str, at_broker_ms: int) -> Sequence[ColumnElement[bool]]:
    return (
        transactions.c.broker_name == broker_name,
        transactions.c.state == "pending",
        transactions.c.due_ms <= at_broker_ms,
    )


def _is_too_old(at_broker_ms: int, rules: CheckRules) -> ColumnElement[bool]:
    return transactions.c.begun_ms < at_broker_ms - rules.age_max_ms


def _is_last_check(broker_name: str) -> ColumnElement[bool]:
    return and_(
        checks.c.broker_name == broker_name,
        checks.c.transaction_id == transactions.c.transaction_id,
        checks.c.number == transactions.c.checks,
    )


def _is_of(groups: Collection[str]) -> ColumnElement[bool]:
    return checks.c.producer_group == any_(_texts(groups))


def _was_opened_lately(now_ms: int, rules: CheckRules) -> ColumnElement[bool]:
    """Return the condition that a check can still be answered.

    A check opened in the future does not count: if the clock was set back, the broker's clock alone
    decides when the check is over.
    """
    return checks.c.opened_ms.between(now_ms - rules.interval_ms, now_ms)


async def refresh_due(connection: AsyncConnection, broker_name: str, rules: CheckRules) -> None:
    """Recompute when transactions are due, because the rules may have changed."""
    first = transactions.c.begun_ms + func.coalesce(transactions.c.immunity_ms, rules.timeout_ms)
    due = func.greatest(
        first + literal(1, BigInteger), transactions.c.checked_ms + rules.interval_ms
    )
    await connection.execute(
        update(transactions)
        .where(
            transactions.c.broker_name == broker_name,
            transactions.c.state == "pending",
            transactions.c.due_ms != due,
        )
        .values(due_ms=due)
    )


async def delete_row(connection: AsyncConnection, broker_name: str, transaction_id: str) -> None:
    """Delete a pending transaction that its broker does not know."""
    await connection.execute(
        delete(transactions).where(
            transactions.c.broker_name == broker_name,
            transactions.c.transaction_id == transaction_id,
            transactions.c.state == "pending",
        )
    )


async def delete_history(
    connection: AsyncConnection, broker_name: str, *, before_ms: int, limit: int
) -> int:
    """Delete transactions decided before *before_ms*, with their checks; return their number."""
    old = (
        select(transactions.c.transaction_id)
        .where(
            transactions.c.broker_name == broker_name,
            transactions.c.decided_ms < before_ms,
            transactions.c.state.in_(("committed", "rolled_back")),
        )
        .limit(limit)
    )
    deleted = await connection.execute(
        delete(transactions).where(
            transactions.c.broker_name == broker_name, transactions.c.transaction_id.in_(old)
        )
    )
    return deleted.rowcount


def _texts(values: Collection[str]) -> BindParameter[Sequence[str]]:
    return literal(sorted(values), ARRAY(TEXT))
