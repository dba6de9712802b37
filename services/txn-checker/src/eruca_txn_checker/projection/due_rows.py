"""Which transactions are due, and the upkeep of their rows; one statement each."""

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
from eruca_txn_checker.core.next_look import Ahead
from eruca_txn_checker.core.transaction_rows import TransactionRow
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

    One about which an answer is known, and not yet to its broker, is not due: that comes first. Nor
    is one whose last check is still to be answered, however late that was read, or may yet be
    asked: see :func:`open_again`.

    Args:
        connection: A transaction.
        broker_name: Whose.
        now_ms: The time, by the clock that checks were opened by.
        at_broker_ms: The time by the broker's.
        limit: How many at most.
        without: Ids that are being dealt with.
        reachable: The producer groups that can be asked.
        counts_unreachable: Whether others are checked, too. They are given up all the same when it
            is time.
        rules: When that is.
    """
    is_settling = exists().where(
        checks.c.broker_name == broker_name,
        checks.c.is_settling,
        checks.c.transaction_id == transactions.c.transaction_id,
    )
    is_in_hand = exists().where(
        _is_last_check(broker_name),
        or_(
            _was_opened_lately(now_ms, rules),
            and_(checks.c.is_open, _is_of(reachable), not_(_is_too_old(at_broker_ms, rules))),
        ),
    )
    chosen = select(*COLUMNS).where(
        *_is_due(broker_name, at_broker_ms), not_(is_settling), not_(is_in_hand)
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
    """Give checks that nobody took a further interval; return of how many transactions.

    Their producers are there and have more to answer than they can, or than this service can ask:
    such a check is not used up. They are the oldest ones, which are taken first.
    """
    untaken = (
        select(checks.c.check_id)
        .join_from(checks, transactions, _is_last_check(broker_name))
        .where(
            *_is_due(broker_name, at_broker_ms),
            not_(_is_too_old(at_broker_ms, rules)),
            checks.c.is_open,
            _is_of(reachable),
            not_(_was_opened_lately(now_ms, rules)),
        )
        .order_by(transactions.c.due_ms)
        .limit(limit)
        .with_for_update(skip_locked=True, of=checks)  # what is just being taken or closed
        .cte("untaken")
    )
    opened = await connection.execute(
        update(checks).where(checks.c.check_id == untaken.c.check_id).values(opened_ms=now_ms)
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
    """Return the moments at which something of *broker_name* falls due that is not due now.

    Args:
        connection: The transaction that has found nothing due at these times.
        broker_name: Whose.
        now_ms: The time, by the clock that checks were opened by.
        at_broker_ms: The time by the broker's.
        answered_since_ms: An older answer is due already.
        rules: When transactions are due.
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
                checks.c.is_settling,
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
    """Tell whether a check may still be answered.

    Not one that was opened in the future: if the clock was set back, the broker's alone says when
    it is over.
    """
    return checks.c.opened_ms.between(now_ms - rules.interval_ms, now_ms)


async def refresh_due(connection: AsyncConnection, broker_name: str, rules: CheckRules) -> None:
    """Work out anew when transactions are due: the rules may have changed since they came."""
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
    """Forget a transaction that its broker does not know."""
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
    """Delete transactions that were decided long ago, and their checks; return how many."""
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
