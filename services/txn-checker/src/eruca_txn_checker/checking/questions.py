"""Checks that were taken, made into questions: with the half message, and only if still pending.

The broker is asked for both at the moment of asking. It knows what the rows here may not know yet:
a transaction that was decided a moment ago is not asked about.

An answer to a producer has a limit of size, as one to a pull has: what exceeds it is given back and
comes with the next.

Checks of a broker that does not answer are given back, too, and none of its are taken for a while:
they are the oldest, and would come first again, before those of other brokers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from eruca.contract.errors import ErucaError, TransactionNotFoundError
from eruca.contract.limits import PULL_SIZE_MAX
from eruca.contract.transactions import ProducerCheck, TransactionDetail
from eruca_chassis.clock import Clock
from eruca_postgres.database import Database
from eruca_postgres.notices import notify
from eruca_txn_checker.checking.broker_calls import BrokerCalls
from eruca_txn_checker.core.moments import moment
from eruca_txn_checker.core.notices import CHECKS
from eruca_txn_checker.projection.check_rows import AskedCheck, close_unsent, give_back

PARALLEL_MAX: Final = 4  # requests to brokers at a time, of one producer's: each brings a body

AWAY_SECONDS: Final = 5.0  # so long no checks are taken of a broker that did not answer

_log = structlog.get_logger()


@dataclass(slots=True)
class QuestionCounts:
    """What became of checks that were taken, since the start."""

    asked: int = 0
    decided_meanwhile: int = 0
    given_back: int = 0  # no message came from the broker, or no room for it, or the producer left


@dataclass(slots=True)
class _Sorted:
    questions: list[ProducerCheck] = field(default_factory=list)
    decided: list[str] = field(default_factory=list)
    put_off: list[str] = field(default_factory=list)
    size: int = 0  # bytes of the questions' messages, as they lie in the log

    def has_room_for(self, size: int) -> bool:
        """Tell whether one more message may come; the first always may."""
        return not self.questions or self.size + size <= PULL_SIZE_MAX


class Questions:
    """Makes questions of checks.

    Args:
        database: Where the checks are.
        calls: To the brokers.
        clock: The one that all instances share.
    """

    def __init__(self, database: Database, calls: BrokerCalls, clock: Clock) -> None:
        self.counts = QuestionCounts()
        self._database = database
        self._calls = calls
        self._clock = clock
        self._away: dict[str, float] = {}  # broker → until when it is left out, monotonic

    def away(self) -> list[str]:
        """Return the brokers whose checks are not to be taken just now."""
        now = self._clock.monotonic()
        self._away = {name: until for name, until in self._away.items() if until > now}
        return list(self._away)

    def away_seconds(self) -> float:
        """Return after how long one more broker's checks may be taken; infinite: no more."""
        self.away()
        return min(self._away.values(), default=math.inf) - self._clock.monotonic()

    async def prepare(self, taken: Sequence[AskedCheck]) -> list[ProducerCheck]:
        """Return what is to be asked of *taken*; the rest is given back, or need not be asked.

        Raises:
            DatabaseUnavailableError: PostgreSQL is not there.
        """
        limit = asyncio.Semaphore(PARALLEL_MAX)
        done = _Sorted()

        async def look(check: AskedCheck) -> None:
            async with limit:
                if not done.has_room_for(1) or check.broker_name in self.away():
                    done.put_off.append(check.check_id)
                    return
                try:
                    detail = await self._calls.get(check.broker_name, check.transaction_id)
                except TransactionNotFoundError:
                    done.decided.append(check.check_id)  # long ago, or lost with its broker's disk
                except ErucaError as error:
                    self._away[check.broker_name] = self._clock.monotonic() + AWAY_SECONDS
                    done.put_off.append(check.check_id)
                    _log.info("check put off", transaction=check.transaction_id, why=str(error))
                else:
                    if detail.state != "pending" or detail.message is None:
                        done.decided.append(check.check_id)
                    elif done.has_room_for(size := int(detail.message["size"])):
                        done.questions.append(_question(check, detail))
                        done.size += size
                    else:
                        done.put_off.append(check.check_id)

        await asyncio.gather(*map(look, taken))
        if done.decided:
            async with self._database.transaction() as connection:
                await close_unsent(connection, done.decided)
        if done.put_off:
            await self.give_back(done.put_off)
        self.counts.decided_meanwhile += len(done.decided)
        self.counts.asked += len(done.questions)
        return sorted(done.questions, key=lambda question: question.begun_at)

    async def give_back(self, check_ids: Sequence[str]) -> None:
        """Let others be asked what was taken and not sent."""
        self.counts.given_back += len(check_ids)
        async with self._database.transaction() as connection:
            await give_back(connection, check_ids)
            await notify(connection, CHECKS)


def _question(check: AskedCheck, detail: TransactionDetail) -> ProducerCheck:
    assert detail.message is not None
    return ProducerCheck(
        check_id=check.check_id,
        transaction_id=check.transaction_id,
        producer_group=check.producer_group,
        broker_name=check.broker_name,
        topic=check.topic,
        queue_id=check.queue_id,
        number=check.number,
        begun_at=moment(check.begun_ms),
        asked_at=moment(check.asked_ms),
        answer_until=moment(check.answer_until_ms),
        message=detail.message,
    )
