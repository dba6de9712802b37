"""Which transactions are due, and the upkeep of their rows; one statement each."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import (
    BigInteger,
    BindParameter,
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
    groups: Collection[str] | None,
    rules: CheckRules,
) -> list[TransactionRow]:
    """Return pending transactions that are due, the longest overdue first.

    One about which an answer is known, and not yet to its broker, is not due: that comes first. Nor
    is one whose last check is still to be answered, however late that was read.

    Args:
        connection: A transaction.
        broker_name: Whose.
        now_ms: The time, by the clock that checks were opened by.
        at_broker_ms: The time by the broker's.
        limit: How many at most.
        without: Ids that are being dealt with.
        groups: Only these producer groups' are checked; None: all. Others' are given up all the
            same when it is time.
        rules: When that is.
    """
    is_settling = exists().where(
        checks.c.broker_name == broker_name,
        checks.c.is_settling,
        checks.c.transaction_id == transactions.c.transaction_id,
    )
    is_asked = exists().where(
        checks.c.broker_name == broker_name,
        checks.c.transaction_id == transactions.c.transaction_id,
        checks.c.number == transactions.c.checks,
        # Not in the future: if the clock was set back, the broker's alone says when it is over.
        checks.c.opened_ms.between(now_ms - rules.interval_ms, now_ms),
    )
    chosen = select(*COLUMNS).where(
        transactions.c.broker_name == broker_name,
        transactions.c.state == "pending",
        transactions.c.due_ms <= at_broker_ms,
        not_(is_settling),
        not_(is_asked),
    )
    if without:
        chosen = chosen.where(transactions.c.transaction_id != func.all(_texts(without)))
    if groups is not None:
        chosen = chosen.where(
            or_(
                transactions.c.producer_group == any_(_texts(groups)),
                transactions.c.checks >= rules.checks_max,
                transactions.c.begun_ms < at_broker_ms - rules.age_max_ms,
            )
        )
    found = await connection.execute(chosen.order_by(transactions.c.due_ms).limit(limit))
    return [TransactionRow(*row) for row in found]


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
