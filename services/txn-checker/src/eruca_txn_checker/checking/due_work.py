"""Handle one broker's due transactions: request their checks, or expire them.

Each step first forwards stored answers that the broker has not confirmed, then looks for due
transactions. An answer that the broker refuses is left for a while and blocks nothing else. The
broker alone grants a check, by its number. So two instances that both believe they hold the claim
never send the same check, and one that works on stale rows is refused.

The effect of a step appears in the rows once it was read back from the log. Until then these
transactions are skipped. If that takes too long they are tried again, which is harmless.

If nothing is due, a step returns when time alone makes something due
(:mod:`eruca_txn_checker.core.next_look`). The loop sleeps until then; events wake it.

Times in the rows are by the broker's clock. So that clock is compared with ours before the first
look, then periodically, and with every grant of a check, which carries its time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.errors import (
    AlreadyDecidedError,
    CheckOutOfTurnError,
    DatabaseUnavailableError,
    ErucaError,
    TransactionNotFoundError,
)
from eruca.contract.transactions import CheckRequest, ExpireRequest
from eruca_chassis.clock import Clock
from eruca_postgres.claims import Claim, ClaimLostError
from eruca_postgres.database import Database
from eruca_postgres.notices import notify
from eruca_txn_checker.checking.answers import Answers
from eruca_txn_checker.checking.broker_calls import AWAY, BrokerCalls
from eruca_txn_checker.core.check_rules import CheckRules, Verdict, verdict
from eruca_txn_checker.core.moments import ms_of
from eruca_txn_checker.core.next_look import seconds_to_next_look
from eruca_txn_checker.core.notices import CHECKS
from eruca_txn_checker.core.other_clock import OtherClock
from eruca_txn_checker.core.transaction_rows import TransactionRow
from eruca_txn_checker.projection.check_rows import KnownCheck, forwarding_checks
from eruca_txn_checker.projection.due_rows import (
    ahead_of,
    delete_history,
    delete_row,
    due_rows,
    open_again,
    refresh_due,
)
from eruca_txn_checker.projection.producer_rows import reachable_groups

DONE_SECONDS: Final = 5.0  # skip a transaction until the log shows the effect, at most so long
TOO_EARLY_SECONDS: Final = 1.0  # skip it so long if the broker's clock is behind
REFUSED_SECONDS: Final = 30.0  # skip it so long if the broker refuses the request
DONE_COUNT_MAX: Final = 2_000  # skipped transactions; beyond that nothing more is checked
FORWARD_COUNT_MAX: Final = 64  # answers forwarded again in one step
FORWARD_AFTER_MS: Final = 2_000  # forward an answer again if unconfirmed for so long
OPEN_COUNT_MAX: Final = 1_000  # untaken checks opened again in one step
HISTORY_COUNT_MAX: Final = 10_000  # rows deleted in one transaction
COMPARE_SECONDS: Final = 10.0  # between two comparisons of the clocks

_log = structlog.get_logger()


@dataclass(slots=True)
class CheckCounts:
    """Work done at brokers since the start."""

    granted: int = 0
    given_up: int = 0
    refused: int = 0  # decided or checked by another instance meanwhile
    put_off: int = 0  # a check that nobody took in time, though the group has producers
    forgotten: int = 0  # the broker no longer knew the transaction


@dataclass(frozen=True, slots=True)
class DueSettings:
    """The settings of this work."""

    rules: CheckRules
    checker: str  # this instance's name
    counts_unreachable: bool
    reachable_ms: int
    parallel_max: int  # concurrent requests to the broker
    history_ms: int


@dataclass(frozen=True, slots=True)
class _Found:
    """The work that a look has found."""

    left: list[KnownCheck]  # answers to forward
    rows: list[TransactionRow]  # transactions to check or expire
    quiet_seconds: float | None  # until time alone makes something due; None: look again soon


class DueWork:
    """The due transactions of one broker; a loop calls ``step``.

    Args:
        database: Holds the rows.
        calls: Requests to the brokers.
        answers: Forwards the stored answers.
        broker_name: The broker.
        claim: Returns the broker's claim, or None while another instance holds it.
        sleep_seconds_max: Returns the upper bound of a sleep.
        settings: The settings.
        counts: Counts the work done.
        clock: The clock that all instances share.
    """

    def __init__(
        self,
        database: Database,
        calls: BrokerCalls,
        answers: Answers,
        broker_name: str,
        *,
        claim: Callable[[], Claim | None],
        sleep_seconds_max: Callable[[], float],
        settings: DueSettings,
        counts: CheckCounts,
        clock: Clock,
    ) -> None:
        self.fault: str | None = None  # the reason why nothing can be checked just now
        self.broker_clock = OtherClock()
        self._database = database
        self._calls = calls
        self._answers = answers
        self._broker_name = broker_name
        self._claim = claim
        self._sleep_seconds_max = sleep_seconds_max
        self._settings = settings
        self._counts = counts
        self._clock = clock
        self._is_refreshed = False
        self._compare_at: float | None = None  # monotonic; None: the clocks were never compared
        self._let_alone: dict[str, float] = {}  # transaction id → skip until, monotonic
        self._refused_answers: dict[str, float] = {}  # check id → skip until, monotonic

    def folded(self, transaction_ids: Collection[str]) -> None:
        """Stop skipping these transactions: the log has shown the effect."""
        for transaction_id in transaction_ids:
            self._let_alone.pop(transaction_id, None)

    async def step(self) -> float | None:
        """Do all that is due now; return for how long nothing will be due, None if unknown."""
        quiet_seconds: float | None = None
        try:
            await self._compare_clocks()
            while (claim := self._claim()) is not None:
                found = await self._some(claim)
                quiet_seconds = found.quiet_seconds
                if len(found.rows) < self._settings.parallel_max:
                    break
        except (ErucaError, ClaimLostError) as error:
            if self.fault is None:  # log it once, not with every attempt
                _log.warning("no checks", broker=self._broker_name, why=str(error))
            self.fault = str(error)
            return None
        self.fault = None
        return quiet_seconds

    async def delete_old(self) -> None:
        """Delete transactions that were decided long ago."""
        if self._compare_at is None:
            return  # without a comparison their age on the broker's clock is unknown
        now_ms = self.broker_clock.there(self._clock.now_ms())
        before_ms = now_ms - self._settings.history_ms
        deleted = HISTORY_COUNT_MAX
        try:
            while deleted == HISTORY_COUNT_MAX and self._claim() is not None:
                async with self._database.transaction() as connection:
                    deleted = await delete_history(
                        connection,
                        self._broker_name,
                        before_ms=before_ms,
                        limit=HISTORY_COUNT_MAX,
                    )
        except DatabaseUnavailableError:
            return  # the next run deletes them

    async def _compare_clocks(self) -> None:
        if self._compare_at is not None and self._clock.monotonic() < self._compare_at:
            return
        asked_ms = self._clock.now_ms()
        told = (await self._calls.status(self._broker_name)).now
        if told is not None:
            self.broker_clock.note(ms_of(told), asked_ms=asked_ms, answered_ms=self._clock.now_ms())
        self._compare_at = self._clock.monotonic() + COMPARE_SECONDS

    async def _some(self, claim: Claim) -> _Found:
        """Do a portion of the due work; return it."""
        if not self._is_refreshed:
            await self._refresh(claim)
        self._forget_expired()
        found = await self._look()
        refused = await self._answers.forward_left(found.left)
        until = self._clock.monotonic() + REFUSED_SECONDS
        self._refused_answers |= dict.fromkeys(refused, until)
        results = await asyncio.gather(
            *(self._act(row, claim) for row in found.rows), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return found

    async def _refresh(self, claim: Claim) -> None:
        async with self._database.transaction() as connection:
            await claim.prove(connection)
            await refresh_due(connection, self._broker_name, self._settings.rules)
        self._is_refreshed = True

    async def _look(self) -> _Found:
        """Return the work that is due, or for how long nothing will be due."""
        settings, now_ms = self._settings, self._clock.now_ms()
        async with self._database.transaction() as connection:
            left = await forwarding_checks(
                connection,
                self._broker_name,
                before_ms=now_ms - FORWARD_AFTER_MS,
                without=self._refused_answers,
                limit=FORWARD_COUNT_MAX,
            )
            if len(self._let_alone) >= DONE_COUNT_MAX:
                return _Found(left, [], None)  # the log is far behind: let it catch up first
            at_broker_ms = self.broker_clock.there(now_ms)
            since_ms = now_ms - settings.reachable_ms
            reachable = await reachable_groups(connection, since_ms=since_ms)
            opened = await open_again(
                connection,
                self._broker_name,
                now_ms=now_ms,
                at_broker_ms=at_broker_ms,
                limit=OPEN_COUNT_MAX,
                reachable=reachable,
                rules=settings.rules,
            )
            if opened:
                await notify(connection, CHECKS)
            rows = await due_rows(
                connection,
                self._broker_name,
                now_ms=now_ms,
                at_broker_ms=at_broker_ms,
                limit=settings.parallel_max,
                without=self._let_alone,
                reachable=reachable,
                counts_unreachable=settings.counts_unreachable,
                rules=settings.rules,
            )
            quiet_seconds = None
            if not (left or opened or rows):
                quiet_seconds = await self._quiet_seconds(connection, now_ms, at_broker_ms)
        self._counts.put_off += opened
        return _Found(left, rows, quiet_seconds)

    async def _quiet_seconds(
        self, connection: AsyncConnection, now_ms: int, at_broker_ms: int
    ) -> float:
        """Return for how long nothing becomes due by itself, within the bound."""
        rules = self._settings.rules
        ahead = await ahead_of(
            connection,
            self._broker_name,
            now_ms=now_ms,
            at_broker_ms=at_broker_ms,
            answered_since_ms=now_ms - FORWARD_AFTER_MS,
            rules=rules,
        )
        until = seconds_to_next_look(
            ahead,
            now_ms=now_ms,
            at_broker_ms=at_broker_ms,
            rules=rules,
            forward_after_ms=FORWARD_AFTER_MS,
        )
        let_alone_until = min(
            (*self._let_alone.values(), *self._refused_answers.values()), default=math.inf
        )
        return min(
            self._sleep_seconds_max(),
            math.inf if until is None else until,
            let_alone_until - self._clock.monotonic(),
        )

    async def _act(self, row: TransactionRow, claim: Claim) -> None:
        # Before the request: its effect may be read back before its answer arrives.
        self._let_alone_for(row, DONE_SECONDS)
        try:
            await self._check_or_give_up(row)
        except AWAY:
            self._let_alone.pop(row.transaction_id, None)
            raise
        except AlreadyDecidedError:
            self._counts.refused += 1
        except CheckOutOfTurnError:
            self._counts.refused += 1
            self._let_alone_for(row, TOO_EARLY_SECONDS)
        except TransactionNotFoundError as error:
            self._counts.forgotten += 1
            _log.warning("transaction forgotten", transaction=row.transaction_id, why=str(error))
            async with self._database.transaction() as connection:
                await claim.prove(connection)
                await delete_row(connection, self._broker_name, row.transaction_id)
        except ErucaError as error:
            # An unexpected refusal must not keep other transactions from being checked.
            self._let_alone_for(row, REFUSED_SECONDS)
            _log.error("check refused", transaction=row.transaction_id, why=str(error))

    async def _check_or_give_up(self, row: TransactionRow) -> None:
        now_ms = self.broker_clock.there(self._clock.now_ms())
        decided = verdict(
            now_ms - row.begun_ms,
            checks=row.checks,
            own_immunity_ms=row.immunity_ms,
            rules=self._settings.rules,
        )
        if decided is Verdict.CHECK:
            await self._check(row)
        elif decided is Verdict.GIVE_UP:
            await self._give_up(row)

    async def _check(self, row: TransactionRow) -> None:
        asked_ms = self._clock.now_ms()
        request = CheckRequest(number=row.checks + 1, checker=self._settings.checker)
        grant = await self._calls.check(self._broker_name, row.transaction_id, request)
        self._counts.granted += 1
        self.broker_clock.note(
            ms_of(grant.checked_at), asked_ms=asked_ms, answered_ms=self._clock.now_ms()
        )

    async def _give_up(self, row: TransactionRow) -> None:
        request = ExpireRequest(checks=row.checks, checker=self._settings.checker)
        await self._calls.expire(self._broker_name, row.transaction_id, request)
        self._counts.given_up += 1
        _log.warning(
            "transaction expired",
            transaction=row.transaction_id,
            producer_group=row.producer_group,
            checks=row.checks,
        )

    def _let_alone_for(self, row: TransactionRow, seconds: float) -> None:
        self._let_alone[row.transaction_id] = self._clock.monotonic() + seconds

    def _forget_expired(self) -> None:
        now = self._clock.monotonic()
        self._let_alone = {id_: until for id_, until in self._let_alone.items() if until > now}
        self._refused_answers = {
            id_: until for id_, until in self._refused_answers.items() if until > now
        }
