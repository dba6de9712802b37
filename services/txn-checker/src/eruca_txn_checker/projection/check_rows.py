"""The rows of checks: take open ones, record answers; one statement each.

A statement changes a check only in a state in which its event is possible.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from sqlalchemy import (
    ColumnElement,
    and_,
    any_,
    exists,
    func,
    literal,
    not_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, TEXT
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_txn_checker.core.check_states import CheckEvent
from eruca_txn_checker.projection.check_columns import becomes, may
from eruca_txn_checker.projection.tables import checks, transactions, webhooks

WEBHOOK = "webhook"  # value of ``asked`` if a webhook was called instead of a client


@dataclass(frozen=True, slots=True)
class AskedCheck:
    """A check that was taken to be sent; times are ms since the epoch."""

    check_id: str
    broker_name: str
    transaction_id: str
    number: int
    producer_group: str
    topic: str
    queue_id: int
    begun_ms: int
    asked_ms: int
    answer_until_ms: int


@dataclass(frozen=True, slots=True)
class KnownCheck:
    """A check for which an answer was given."""

    check_id: str
    broker_name: str
    transaction_id: str
    number: int
    producer_group: str
    answer: str | None
    answer_reason: str | None
    is_forwarding: bool


@dataclass(frozen=True, slots=True)
class CheckRow:
    """A check with all its columns; times are ms since the epoch."""

    check_id: str
    number: int
    checker: str
    checked_ms: int
    asked: str | None
    asked_ms: int | None
    answer_until_ms: int | None
    answer: str | None
    answered_by: str | None
    answered_ms: int | None
    answer_reason: str | None
    fault: str | None


_HAS_WEBHOOK = exists().where(
    webhooks.c.producer_group == checks.c.producer_group, webhooks.c.is_enabled
)


def opened_after_ms(now_ms: int, interval_ms: int) -> int:
    """Return the time after which a check must have been opened to be still worth sending.

    The last tenth of the interval is excluded: otherwise a producer could get the old check while
    another is about to get the next one.
    """
    return now_ms - interval_ms * 9 // 10


async def open_counts(
    connection: AsyncConnection,
    groups: Collection[str],
    *,
    now_ms: int,
    interval_ms: int,
    without_brokers: Collection[str] = (),
) -> dict[str, int]:
    """Return how many open checks of each of *groups* a polling producer could take.

    Checks of the brokers *without_brokers* are excluded.
    """
    found = await connection.execute(
        select(checks.c.producer_group, func.count().label("waiting"))
        .where(
            may(CheckEvent.TAKEN),
            checks.c.producer_group == any_(literal(sorted(groups), ARRAY(TEXT))),
            checks.c.broker_name != func.all(literal(sorted(without_brokers), ARRAY(TEXT))),
            checks.c.opened_ms > opened_after_ms(now_ms, interval_ms),
            not_(_HAS_WEBHOOK),
        )
        .group_by(checks.c.producer_group)
    )
    return {row.producer_group: row.waiting for row in found}


async def take_for_producer(
    connection: AsyncConnection,
    producer_group: str,
    client_id: str,
    *,
    now_ms: int,
    interval_ms: int,
    limit: int,
    without_brokers: Collection[str] = (),
) -> list[AskedCheck]:
    """Take open checks of a group, oldest first, exclusively.

    Checks of the brokers *without_brokers* are excluded.
    """
    its = and_(checks.c.producer_group == producer_group, not_(_HAS_WEBHOOK))
    taking = _Taking(client_id, now_ms, interval_ms, limit, without_brokers)
    return await _take(connection, its, taking)


async def take_for_webhooks(
    connection: AsyncConnection,
    *,
    now_ms: int,
    interval_ms: int,
    limit: int,
    without_groups: Collection[str],
    without_brokers: Collection[str],
) -> list[AskedCheck]:
    """Take open checks of groups with a webhook, exclusively.

    Checks of the groups *without_groups* and of the brokers *without_brokers* are excluded.
    """
    called = select(webhooks.c.producer_group).where(webhooks.c.is_enabled)
    theirs = and_(
        checks.c.producer_group.in_(called),
        checks.c.producer_group != func.all(literal(sorted(without_groups), ARRAY(TEXT))),
    )
    taking = _Taking(WEBHOOK, now_ms, interval_ms, limit, without_brokers)
    return await _take(connection, theirs, taking)


@dataclass(frozen=True, slots=True)
class _Taking:
    asked: str
    now_ms: int
    interval_ms: int
    limit: int
    without_brokers: Collection[str]


async def _take(
    connection: AsyncConnection, wanted: ColumnElement[bool], taking: _Taking
) -> list[AskedCheck]:
    chosen = (
        select(checks.c.check_id)
        .where(
            may(CheckEvent.TAKEN),
            wanted,
            checks.c.broker_name != func.all(literal(sorted(taking.without_brokers), ARRAY(TEXT))),
            checks.c.opened_ms > opened_after_ms(taking.now_ms, taking.interval_ms),
        )
        .order_by(checks.c.checked_ms)
        .limit(taking.limit)
        .with_for_update(skip_locked=True, of=checks)
        .cte("chosen")
    )
    taken = await connection.execute(
        update(checks)
        .where(
            checks.c.check_id == chosen.c.check_id,
            transactions.c.broker_name == checks.c.broker_name,
            transactions.c.transaction_id == checks.c.transaction_id,
        )
        .values(
            **becomes(CheckEvent.TAKEN),
            asked=taking.asked,
            asked_ms=taking.now_ms,
            answer_until_ms=func.least(checks.c.opened_ms, taking.now_ms) + taking.interval_ms,
        )
        .returning(*_ASKED)
    )
    return sorted((AskedCheck(*row) for row in taken), key=_age)


async def give_back(connection: AsyncConnection, check_ids: Collection[str]) -> None:
    """Reopen checks that were taken but not sent, if they are still worth sending."""
    await connection.execute(
        update(checks)
        .where(
            checks.c.check_id == any_(literal(sorted(check_ids), ARRAY(TEXT))),
            may(CheckEvent.GIVEN_BACK),
            transactions.c.broker_name == checks.c.broker_name,
            transactions.c.transaction_id == checks.c.transaction_id,
            transactions.c.state == "pending",
            transactions.c.checks == checks.c.number,
        )
        .values(**becomes(CheckEvent.GIVEN_BACK))
    )


async def note_answer(
    connection: AsyncConnection,
    check_id: str,
    answer: str,
    *,
    answered_by: str | None,
    reason: str | None,
    now_ms: int,
) -> KnownCheck | None:
    """Store an answer unless a decisive one exists; return the check with its stored answer."""
    event = CheckEvent.UNDECIDED if answer == "unknown" else CheckEvent.DECIDED
    await connection.execute(
        update(checks)
        .where(checks.c.check_id == check_id, may(event))
        .values(
            **becomes(event),
            answer=answer,
            answered_by=func.coalesce(answered_by, checks.c.asked),
            answered_ms=now_ms,
            answer_reason=reason,
        )
    )
    found = (await connection.execute(select(*_KNOWN).where(checks.c.check_id == check_id))).first()
    return None if found is None else KnownCheck(*found)


async def close_unsent(connection: AsyncConnection, check_ids: Collection[str]) -> None:
    """Close taken checks that need not be sent because their transactions are decided."""
    await connection.execute(
        update(checks)
        .where(
            checks.c.check_id == any_(literal(sorted(check_ids), ARRAY(TEXT))),
            may(CheckEvent.WITHDRAWN),
        )
        .values(**becomes(CheckEvent.WITHDRAWN))
    )


async def note_forwarded(connection: AsyncConnection, check_id: str) -> None:
    """Record that the broker has confirmed or refused the answer."""
    await connection.execute(
        update(checks)
        .where(checks.c.check_id == check_id, may(CheckEvent.CONFIRMED))
        .values(**becomes(CheckEvent.CONFIRMED))
    )


async def note_fault(connection: AsyncConnection, check_id: str, fault: str) -> None:
    """Record why a check could not be sent or forwarded."""
    await connection.execute(
        update(checks).where(checks.c.check_id == check_id).values(fault=fault)
    )


async def forwarding_checks(
    connection: AsyncConnection,
    broker_name: str,
    *,
    before_ms: int,
    without: Collection[str] = (),
    limit: int,
) -> list[KnownCheck]:
    """Return answers given before *before_ms* that the broker has not confirmed.

    Answers to the checks *without* are excluded.
    """
    found = await connection.execute(
        select(*_KNOWN)
        .where(
            checks.c.broker_name == broker_name,
            may(CheckEvent.CONFIRMED),
            checks.c.answered_ms < before_ms,
            checks.c.check_id != func.all(literal(sorted(without), ARRAY(TEXT))),
        )
        .order_by(checks.c.answered_ms)
        .limit(limit)
    )
    return [KnownCheck(*row) for row in found]


async def checks_of(
    connection: AsyncConnection, broker_name: str, transaction_id: str
) -> list[CheckRow]:
    """Return a transaction's checks, ordered by number."""
    found = await connection.execute(
        select(*(checks.c[field.name] for field in fields(CheckRow)))
        .where(checks.c.broker_name == broker_name, checks.c.transaction_id == transaction_id)
        .order_by(checks.c.number)
    )
    return [CheckRow(*row) for row in found]


_ASKED = (
    checks.c.check_id,
    checks.c.broker_name,
    checks.c.transaction_id,
    checks.c.number,
    checks.c.producer_group,
    transactions.c.topic,
    transactions.c.queue_id,
    transactions.c.begun_ms,
    checks.c.asked_ms,
    checks.c.answer_until_ms,
)
_KNOWN = (
    checks.c.check_id,
    checks.c.broker_name,
    checks.c.transaction_id,
    checks.c.number,
    checks.c.producer_group,
    checks.c.answer,
    checks.c.answer_reason,
    checks.c.is_forwarding,
)


def _age(check: AskedCheck) -> tuple[int, str]:
    return check.begun_ms, check.check_id
