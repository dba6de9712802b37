"""Fold a stretch of a broker's log into rows: read the rows it touches, fold, write the changes.

A stretch of any length costs a few statements. Nearly all transactions are begun and decided by
their producer: they pass through here once and are never read again.

A corrupt event still contains its transaction's id, but no more. The broker is asked for that
transaction's current state. Later events find that state in the row and change nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog
from sqlalchemy import any_, delete, func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import ARRAY, TEXT, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.errors import TransactionNotFoundError
from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.properties import TAGS, UNIQ_KEY, decode_properties
from eruca.contract.records import DamagedRecordError, decode_record
from eruca.contract.transaction_events import (
    TRANSACTION_TAGS,
    TransactionChecked,
    TransactionEvent,
    decode_transaction_event,
)
from eruca.contract.transactions import TransactionDetail
from eruca.core.messages.log_block import LogBlock, LogRecord
from eruca_chassis.clock import Clock
from eruca_postgres.notices import notify
from eruca_txn_checker.core.check_ids import check_id_of
from eruca_txn_checker.core.check_rules import CheckRules
from eruca_txn_checker.core.check_states import CheckEvent
from eruca_txn_checker.core.notices import CHECKS
from eruca_txn_checker.core.transaction_rows import TransactionRow, folded, row_of
from eruca_txn_checker.projection.check_columns import becomes, may
from eruca_txn_checker.projection.forgotten import ROWS_MAX, delete_some
from eruca_txn_checker.projection.listing import COLUMNS
from eruca_txn_checker.projection.tables import checks, transactions

_KEY: Final = ("broker_name", "transaction_id")
_MARK: Final = b"transaction_"  # the prefix of every tag

_log = structlog.get_logger()


class LoggedEvent(NamedTuple):
    """An event, and the log offset after it."""

    event: TransactionEvent
    next_offset: int


class ReadEvents(NamedTuple):
    """The transaction events of a stretch of the log, in order."""

    events: list[LoggedEvent]
    unreadable: dict[str, int]  # transaction id → log offset of its last corrupt event


@dataclass(slots=True)
class FoldCounts:
    """Counts since the start of an instance."""

    unreadable: int = 0  # transactions with a corrupt event


class TransactionProjection:
    """Writes the rows of ``transactions``, and the rows of ``checks`` granted from then on.

    Args:
        rules: The settings of checking.
        clock: The clock that all instances share.
        on_checks: Called with the producer groups of newly granted checks, once the rows are
            committed.
        on_folded: Called with a broker's name and the ids of folded transactions, once their rows
            are committed.
        ask: Returns a transaction in the current view of its broker, the first argument.
        counts: Counts of all brokers together.
        forgotten_max: Maximum of transactions deleted in one transaction.
    """

    def __init__(
        self,
        rules: CheckRules,
        clock: Clock,
        *,
        on_checks: Callable[[set[str]], None],
        on_folded: Callable[[str, Collection[str]], None],
        ask: Callable[[str, str], Awaitable[TransactionDetail]],
        counts: FoldCounts,
        forgotten_max: int = ROWS_MAX,
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._on_checks = on_checks
        self._on_folded = on_folded
        self._ask = ask
        self._counts = counts
        self._forgotten_max = forgotten_max

    def prepare(self, block: LogBlock) -> ReadEvents:
        """Return the transaction events of *block*.

        Raises:
            DamagedRecordError: The block is not a stretch of a log.
        """
        unreadable = {
            transaction_id: log_offset
            for log_offset, raw in block.damaged.items()
            if (transaction_id := _damaged_events_transaction(raw)) is not None
        }
        if _MARK not in block.data:  # fast path: true for nearly all blocks
            return ReadEvents([], unreadable)
        read = transaction_events(block.records())
        return ReadEvents(read.events, unreadable | read.unreadable)

    async def fold_block(
        self, connection: AsyncConnection, block: LogBlock, read: ReadEvents
    ) -> Callable[[], None] | None:
        """Fold the events of *block* into rows.

        Raises:
            ErucaError: The broker could not be asked about a corrupt event.
        """
        if not (read.events or read.unreadable):
            return None
        tell = await self.fold(connection, block.broker_name, read.events)
        asked = [
            row
            for transaction_id in read.unreadable
            if (row := await self._asked(block.broker_name, transaction_id)) is not None
        ]
        before = await _rows(connection, block.broker_name, {row.transaction_id for row in asked})
        await _delete(
            connection,
            block.broker_name,
            {
                row.transaction_id
                for row in asked
                if row.begun_ms != before.get(row.transaction_id, row).begun_ms
            },
        )
        await _write(connection, asked)
        await _close_checks(connection, block.broker_name, asked)

        def committed() -> None:
            self._counts.unreadable += len(read.unreadable)
            for transaction_id, log_offset in read.unreadable.items():
                _log.warning(
                    "transaction event is corrupt; its state was read from the broker",
                    broker=block.broker_name,
                    transaction=transaction_id,
                    log_offset=log_offset,
                )
            tell()

        return committed

    async def _asked(self, broker_name: str, transaction_id: str) -> TransactionRow | None:
        try:
            detail = await self._ask(broker_name, transaction_id)
        except TransactionNotFoundError:
            return None  # the transaction is lost, and nothing can be done about it
        return row_of(detail, rules=self._rules)

    async def fold(
        self, connection: AsyncConnection, broker_name: str, events: Sequence[LoggedEvent]
    ) -> Callable[[], None]:
        """Fold *events*; return the function that announces them once they are committed."""
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

        if groups:
            await notify(connection, CHECKS)

        def tell() -> None:
            if groups:
                self._on_checks(groups)
            self._on_folded(broker_name, after.keys())

        return tell

    async def forget(self, connection: AsyncConnection, broker_name: str) -> bool:
        """Delete a portion of a broker's rows; return whether there may be more.

        Rows that the log does not rebuild stay deleted. Decided transactions are deleted, too: a
        broker that lost the end of its log may have lost a decision, and then has that transaction
        pending again.
        """
        deleted = await delete_some(connection, broker_name, rows_max=self._forgotten_max)
        return deleted == self._forgotten_max


def transaction_events(records: Iterable[LogRecord]) -> ReadEvents:
    """Return the transaction events in *records*.

    Raises:
        DamagedRecordError: They are not records.
    """
    read = ReadEvents([], {})
    for record in records:
        if record.topic != EVENTS_TOPIC:
            continue
        properties = decode_properties(record.decode(check_crc=False).properties)
        if properties.get(TAGS) not in TRANSACTION_TAGS:
            continue
        try:
            event = decode_transaction_event(record.decode().body)
        except ValueError:
            read.unreadable[properties.get(UNIQ_KEY, "")] = record.log_offset
        else:
            read.events.append(LoggedEvent(event, record.next_offset))
    return read


def _damaged_events_transaction(raw: bytes) -> str | None:
    """Return the transaction id of a damaged event record; None if it is not such an event.

    Use the id only to ask the broker: the damage may be in the id itself.
    """
    try:
        record = decode_record(raw, check_crc=False)
    except DamagedRecordError:
        return None
    properties = record.property_map()
    is_event = record.topic == EVENTS_TOPIC and properties.get(TAGS) in TRANSACTION_TAGS
    return properties.get(UNIQ_KEY) if is_event else None


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
    """Delete transactions with their checks: new ones with the same ids replace them."""
    if ids:
        await connection.execute(
            delete(transactions).where(
                transactions.c.broker_name == broker_name,
                transactions.c.transaction_id == any_(literal(sorted(ids), ARRAY(TEXT))),
            )
        )


async def _write(connection: AsyncConnection, rows: list[TransactionRow]) -> None:
    """Insert or replace *rows* with one statement that takes columns as parameters."""
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
    """Close checks that need not be sent any more: there is a decision, or a newer check."""
    touched = [row.transaction_id for row in rows if row.checks > 0]
    if touched:
        await connection.execute(
            update(checks)
            .where(
                checks.c.broker_name == broker_name,
                checks.c.transaction_id == any_(literal(touched, ARRAY(TEXT))),
                may(CheckEvent.OVER),
                transactions.c.broker_name == checks.c.broker_name,
                transactions.c.transaction_id == checks.c.transaction_id,
                or_(
                    transactions.c.state != "pending",
                    transactions.c.checks != checks.c.number,
                ),
            )
            .values(**becomes(CheckEvent.OVER))
        )


async def _open_checks(
    connection: AsyncConnection,
    rows: dict[str, TransactionRow],
    granted: list[TransactionChecked],
    *,
    now_ms: int,
) -> set[str]:
    """Store the granted checks; return the groups of those that can be sent."""
    values = []
    for event in granted:
        row = rows[event.transaction_id]
        is_latest = row.state == "pending" and row.checks == event.number
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
                **becomes(CheckEvent.GRANTED if is_latest else CheckEvent.GRANTED_LATE),
            }
        )
    if values:
        await connection.execute(insert(checks).on_conflict_do_nothing(), values)
    return {str(value["producer_group"]) for value in values if value["is_open"]}
