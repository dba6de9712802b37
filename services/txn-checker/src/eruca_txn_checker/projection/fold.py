"""A stretch of a broker's log made into rows: read what it touches, fold, write what changed.

However long the stretch, it costs a few statements: transactions that a producer began and decided
itself, which are nearly all, pass through here once and are never looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from sqlalchemy import any_, delete, func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import ARRAY, TEXT, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.properties import TAGS, decode_properties
from eruca.contract.transaction_events import (
    TRANSACTION_TAGS,
    TransactionChecked,
    TransactionEvent,
    decode_transaction_event,
)
from eruca.core.messages.log_block import LogBlock, LogRecord
from eruca_chassis.clock import Clock
from eruca_txn_checker.core.check_ids import check_id_of
from eruca_txn_checker.core.check_rules import CheckRules
from eruca_txn_checker.core.transaction_rows import TransactionRow, folded
from eruca_txn_checker.projection.forgotten import ROWS_MAX, delete_some
from eruca_txn_checker.projection.listing import COLUMNS
from eruca_txn_checker.projection.tables import checks, transactions

_KEY: Final = ("broker_name", "transaction_id")
_MARK: Final = b"transaction_"  # what every tag begins with


class LoggedEvent(NamedTuple):
    """An event, and the log offset behind it."""

    event: TransactionEvent
    next_offset: int


class TransactionProjection:
    """Makes the rows of ``transactions``, and those of ``checks`` that are asked from then on.

    Args:
        rules: When transactions are due.
        clock: The one that all instances share.
        on_checks: Called with the producer groups of which checks have been granted, once the
            rows can be seen.
        on_folded: Called with a broker's name and the ids of transactions, once what the log says
            of them can be seen.
        forgotten_max: Transactions that are forgotten in one go.
    """

    def __init__(
        self,
        rules: CheckRules,
        clock: Clock,
        *,
        on_checks: Callable[[set[str]], None],
        on_folded: Callable[[str, Collection[str]], None],
        forgotten_max: int = ROWS_MAX,
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._on_checks = on_checks
        self._on_folded = on_folded
        self._forgotten_max = forgotten_max

    def prepare(self, block: LogBlock) -> list[LoggedEvent]:
        """Return what *block* says of transactions.

        Raises:
            DamagedRecordError: It is no stretch of a log.
        """
        if _MARK not in block.data:
            return []  # as nearly all are, where transactions are few
        return list(transaction_events(block.records()))

    async def fold_block(
        self, connection: AsyncConnection, block: LogBlock, events: list[LoggedEvent]
    ) -> Callable[[], None] | None:
        """Fold what *block* says."""
        return await self.fold(connection, block.broker_name, events) if events else None

    async def fold(
        self, connection: AsyncConnection, broker_name: str, events: Sequence[LoggedEvent]
    ) -> Callable[[], None]:
        """Fold *events*; return what tells others of them once they are committed."""
        before = await _rows(connection, broker_name, {e.event.transaction_id for e in events})
        after = dict(before)
        granted: dict[str, dict[int, TransactionChecked]] = {}
        used_again: set[str] = set()
        for event, next_offset in events:
            row = after.get(event.transaction_id)
            changed = folded(
                row,
                event,
                broker_name=broker_name,
                next_offset=next_offset,
                rules=self._rules,
            )
            if changed is None or changed is row:
                continue
            after[event.transaction_id] = changed
            if row is not None and changed.begun_ms != row.begun_ms:
                used_again.add(event.transaction_id)
                granted.pop(event.transaction_id, None)
            if isinstance(event, TransactionChecked):
                granted.setdefault(event.transaction_id, {})[event.number] = event
        written = [row for row in after.values() if row is not before.get(row.transaction_id)]
        await _delete(connection, broker_name, used_again)
        await _write(connection, written)
        await _close_checks(connection, broker_name, written)
        groups = await _open_checks(
            connection,
            after,
            [check for its in granted.values() for check in its.values()],
            now_ms=self._clock.now_ms(),
        )

        def tell() -> None:
            if groups:
                self._on_checks(groups)
            self._on_folded(broker_name, after.keys())

        return tell

    async def forget(self, connection: AsyncConnection, broker_name: str) -> bool:
        """Drop some of what there is of a broker; tell whether there may be more.

        What its log does not tell again is no more. What is over goes, too: a broker that has lost
        the end of its log may have lost a decision, and has that transaction pending again.
        """
        deleted = await delete_some(connection, broker_name, rows_max=self._forgotten_max)
        return deleted == self._forgotten_max


def transaction_events(records: Iterable[LogRecord]) -> Iterator[LoggedEvent]:
    """Yield what *records* say of transactions, in order."""
    for record in records:
        if record.topic != EVENTS_TOPIC:
            continue
        decoded = record.decode()
        if decode_properties(decoded.properties).get(TAGS) in TRANSACTION_TAGS:
            yield LoggedEvent(decode_transaction_event(decoded.body), record.next_offset)


async def _rows(
    connection: AsyncConnection, broker_name: str, ids: set[str]
) -> dict[str, TransactionRow]:
    found = await connection.execute(
        select(*COLUMNS).where(
            transactions.c.broker_name == broker_name,
            transactions.c.transaction_id == any_(literal(sorted(ids), ARRAY(TEXT))),
        )
    )
    return {row.transaction_id: TransactionRow(*row) for row in found}


async def _delete(connection: AsyncConnection, broker_name: str, ids: set[str]) -> None:
    """Delete the rows of transactions with their checks, whose ids the next ones will have."""
    if ids:
        await connection.execute(
            delete(transactions).where(
                transactions.c.broker_name == broker_name,
                transactions.c.transaction_id == any_(literal(sorted(ids), ARRAY(TEXT))),
            )
        )


async def _write(connection: AsyncConnection, rows: list[TransactionRow]) -> None:
    """Insert or replace *rows* by one statement, whose parameters are columns."""
    if not rows:
        return
    columns = [
        literal([getattr(row, column.name) for row in rows], ARRAY(column.type))
        for column in COLUMNS
    ]
    names = [column.name for column in COLUMNS]
    statement = insert(transactions).from_select(
        names, select(func.unnest(*columns).table_valued(*names).render_derived())
    )
    changed = {name: statement.excluded[name] for name in names if name not in _KEY}
    await connection.execute(statement.on_conflict_do_update(index_elements=_KEY, set_=changed))


async def _close_checks(
    connection: AsyncConnection, broker_name: str, rows: list[TransactionRow]
) -> None:
    """Close what need not be asked any more: there is a decision, or another check."""
    touched = [row.transaction_id for row in rows if row.checks > 0]
    if touched:
        await connection.execute(
            update(checks)
            .where(
                checks.c.broker_name == broker_name,
                checks.c.transaction_id == any_(literal(touched, ARRAY(TEXT))),
                checks.c.is_open,
                transactions.c.broker_name == checks.c.broker_name,
                transactions.c.transaction_id == checks.c.transaction_id,
                or_(
                    transactions.c.state != "pending",
                    transactions.c.checks != checks.c.number,
                ),
            )
            .values(is_open=False)
        )


async def _open_checks(
    connection: AsyncConnection,
    rows: dict[str, TransactionRow],
    granted: list[TransactionChecked],
    *,
    now_ms: int,
) -> set[str]:
    """Store the checks that were granted; return the groups of those that can be asked."""
    values = []
    for event in granted:
        row = rows[event.transaction_id]
        values.append(
            {
                "check_id": check_id_of(row.broker_name, row.transaction_id, event.number),
                "broker_name": row.broker_name,
                "transaction_id": row.transaction_id,
                "number": event.number,
                "producer_group": row.producer_group,
                "checker": event.checker,
                "checked_ms": event.checked_at,
                "opened_ms": now_ms,
                "is_open": row.state == "pending" and row.checks == event.number,
            }
        )
    if values:
        await connection.execute(insert(checks).on_conflict_do_nothing(), values)
    return {str(value["producer_group"]) for value in values if value["is_open"]}
