"""Decisions that nobody waits for: those of a short time share a request to their broker.

The caller hands a decision over and goes on, as with RocketMQ's producer, which sends it one-way.
Here the answer is read all the same: what was lost on the way is sent again, and a refusal is
logged. Nobody waits for it, so decisions linger as messages do, and one request carries several.

States of a decision::

    handed over ──lingered, or enough──▶ under way ──the broker answers──▶ settled
                                          │    ▲ │
                                          │    └─┴── lost: again, alone
                                          └──its time is over──▶ left to the checker

Invariants:

1. At most :data:`COUNT_MAX` are handed over or under way; beyond that a caller waits for room.
2. Until a decision is settled, the producer's book has it, so a check gets the same answer.
3. Each is settled or left within twice the time limit of decisions, so closing ends.

If the process ends earlier, the transaction is undecided, and the checker asks the producer group.

Concurrency rule: belongs to the event loop that first uses it.

Source: RocketMQ 5.3, ``DefaultMQProducerImpl.endTransaction``.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from eruca.contract.errors import ErucaError
from eruca.contract.limits import SHARED_TRANSACTION_COUNT_MAX

if TYPE_CHECKING:
    from eruca.aio.transactions.decisions import Decision, Decisions
    from eruca.core.producing.transaction_book import TransactionBook

COUNT_MAX: Final = 1_024  # decisions handed over or under way
LINGER_SECONDS: Final = 0.001  # as messages, by default

_logger = logging.getLogger(__name__)


class UnawaitedDecisions:
    """Delivers decisions of one producer group in the background.

    Args:
        decisions: Sends them.
        book: The producer's transactions.
    """

    def __init__(self, decisions: Decisions, book: TransactionBook) -> None:
        self.is_closed = False
        self._decisions = decisions
        self._book = book
        self._room = asyncio.Semaphore(COUNT_MAX)
        self._waiting: list[Decision] = []
        self._timer: asyncio.TimerHandle | None = None
        self._under_way: set[asyncio.Task[None]] = set()  # the loop holds only weak references

    async def hand_over(self, decision: Decision) -> None:
        """Take a decision and deliver it soon; this waits for nothing but room."""
        await self._room.acquire()
        self._waiting.append(decision)
        if self.is_closed or len(self._waiting) >= SHARED_TRANSACTION_COUNT_MAX:
            self._send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._send)

    async def close(self) -> None:
        """Take no more decisions; return once every one that was taken is settled or left."""
        self.is_closed = True
        self._send()
        while self._under_way:
            await asyncio.wait(self._under_way)

    def give_up(self) -> None:
        """Leave every decision that is not settled yet to the checker."""
        left, self._waiting = len(self._waiting), []
        for task in self._under_way:
            task.cancel()
        if left or self._under_way:
            _logger.warning("decisions that nobody awaits are left to the checker")

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        taken, self._waiting = self._waiting, []
        by_url: dict[str, list[Decision]] = {}
        for decision in taken:
            by_url.setdefault(self._decisions.url_of(decision), []).append(decision)
        for url, some in by_url.items():
            task = asyncio.get_running_loop().create_task(self._deliver(url, some))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _deliver(self, url: str, some: list[Decision]) -> None:
        try:
            outcomes = await self._decisions.told(url, some)
            repeated = []
            for decision, outcome in zip(some, outcomes, strict=True):
                if outcome is None:
                    repeated.append(decision)
                else:
                    self._settle(decision, outcome if isinstance(outcome, ErucaError) else None)
            await asyncio.gather(*map(self._deliver_alone, repeated))
        finally:
            for _ in some:
                self._room.release()

    async def _deliver_alone(self, decision: Decision) -> None:
        half, url, outcome, reason = decision
        try:
            receipt = await self._decisions.deliver(half, url, outcome, reason)
        except ErucaError as error:
            self._settle(decision, error)
        else:
            if receipt is not None:  # else it is left, which is logged
                self._settle(decision, None)

    def _settle(self, decision: Decision, refusal: ErucaError | None) -> None:
        self._book.settle(decision.half.transaction_id)
        if refusal is not None:
            _logger.warning(
                "the broker refused the %s of transaction %s: %s",
                decision.outcome,
                decision.half.transaction_id,
                refusal,
            )
