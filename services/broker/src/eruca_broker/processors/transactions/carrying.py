"""Carry transactions forward: undecided ones outlive the segments of their messages.

Before retention deletes a segment, each pending half message in it, and each parked one, is stored
again, behind an event. An op message marks the old one as finished for readers of the half topic.
All of it is one write, in the transaction's turn. A decision meanwhile waits, and then finds the
message in its new place.

Source: RocketMQ 5.3 drops half messages that are older than its retention.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import structlog

from eruca.contract.errors import ErucaError
from eruca.contract.records import Host
from eruca.contract.transaction_events import TransactionCarried
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.half_messages import (
    HALF_PLACE,
    OP_PLACE,
    PARKED_PLACE,
    carried,
    carried_parked,
    op_message,
    queue_offset_of,
)
from eruca_broker.core.state.transactions import LiveTransaction
from eruca_broker.processors.transactions.log import TransactionLog, told_whose
from eruca_broker.processors.turns import Turns
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.clock import Clock

CARRIED_COUNT_MAX: Final = 64  # in one turn of the event loop
CARRIED_SIZE_MAX: Final = 1024 * 1024  # bytes in one turn; the first goes whatever its size

_log = structlog.get_logger()


class TransactionCarrier:
    """Carries the transactions of one store forward."""

    def __init__(
        self,
        store: MessageStore,
        log: TransactionLog,
        turns: Turns,
        *,
        store_host: Host,
        clock: Clock,
    ) -> None:
        self.carried_count = 0  # since the start
        self._store = store
        self._log = log
        self._turns = turns
        self._store_host = store_host
        self._clock = clock

    async def carry_forward(self, log_offset: int) -> None:
        """Store undecided messages from before *log_offset* again, to free their segments.

        Raises:
            ErucaError: There is no room for them, or a message is damaged; messages that were not
                carried keep their segments.
        """
        await self._carry_all(
            lambda: self._store.state.transactions.before(log_offset),
            lambda live: live.offset < log_offset,
        )

    async def carry_imported(self) -> None:
        """Store half messages of RocketMQ again, behind events that inform checkers.

        If there is no room for one, that is logged: it is pending all the same.
        """
        is_due = self._log.is_imported
        try:
            await self._carry_all(
                lambda: list(filter(is_due, self._store.state.transactions)), is_due
            )
        except ErucaError as error:
            _log.warning("checkers do not learn about imported transactions", reason=error.detail)

    async def _carry_all(
        self,
        find: Callable[[], list[LiveTransaction]],
        is_due: Callable[[LiveTransaction], bool],
    ) -> None:
        while found := find():
            left = iter(found)
            while written := self._carry_some(left, is_due):
                outcomes = await asyncio.gather(*written, return_exceptions=True)
                for outcome in outcomes:
                    if outcome is not None:
                        raise outcome

    def _carry_some(
        self, left: Iterator[LiveTransaction], is_due: Callable[[LiveTransaction], bool]
    ) -> list[asyncio.Future[None]]:
        """Write as many as one turn takes, or wait for theirs; return the completion.

        Transactions that were decided or carried meanwhile are skipped. One that is waited for is
        found again after that, if it still needs carrying.
        """
        written: list[asyncio.Future[None]] = []
        size = 0
        for known in left:
            live = self._store.state.transactions.get(known.transaction_id)
            if live is None or not is_due(live):
                continue
            future = asyncio.get_running_loop().create_future()
            written.append(future)
            if self._turns.is_taken(live.transaction_id):
                self._turns.wait(live.transaction_id, partial(_wake, future), future.set_exception)
            else:
                with told_whose(live):
                    size += self._carry(live, future)
            if len(written) == CARRIED_COUNT_MAX or size >= CARRIED_SIZE_MAX:
                break
        return written

    def _carry(self, live: LiveTransaction, future: asyncio.Future[None]) -> int:
        """Write one again, in its turn; return the size of the write in bytes."""
        message, _ = self._log.message_of(live)
        now_ms = self._clock.now_ms()
        if live.parked_at is not None:
            batches = [batch_of_records(*PARKED_PLACE, [carried_parked(message)])]
        else:
            op = op_message(queue_offset_of(message), now_ms=now_ms, host=self._store_host)
            batches = [
                batch_of_records(*HALF_PLACE, [carried(message, live.checks)]),
                batch_of_records(*OP_PLACE, [op]),
            ]
        size = sum(batch.size for batch in batches)
        event = TransactionCarried(
            live.transaction_id,
            live.producer_group,
            live.topic,
            live.queue_id,
            live.begun_at,
            live.begun_offset,
            live.immunity_ms,
            live.checks,
            live.checked_at,
            live.parked_at,
            carried_at=now_ms,
            group_size=size,
        )
        self._turns.take(live.transaction_id)
        settle = partial(self._settle, live.transaction_id, future)
        try:
            self._store.append_group_then(batches, None, settle, head=event, despite_full_disk=True)
        except Exception:
            self._turns.give(live.transaction_id)
            raise
        return size

    def _settle(
        self,
        transaction_id: str,
        future: asyncio.Future[None],
        outcome: list[Appended] | ErucaError,
    ) -> None:
        if isinstance(outcome, list):
            self.carried_count += 1
        if not future.done():
            if isinstance(outcome, list):
                future.set_result(None)
            else:
                future.set_exception(outcome)
        self._turns.give(transaction_id)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
