"""Turn taken checks into questions: add the half message, and drop those already decided.

Both come from the broker at the moment of asking. It may know more than the rows here: nobody is
asked about a transaction that was decided a moment ago.

The size of an answer to a producer is limited, like that of a pull. Checks beyond the limit are
returned and come with the next answer.

Checks of an unreachable broker are returned, too, and no more of its checks are taken for a while.
They are the oldest, so they would come first again, before those of other brokers.
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

PARALLEL_MAX: Final = 4  # concurrent requests to brokers for one producer: each returns a body

AWAY_SECONDS: Final = 5.0  # skip the checks of an unreachable broker for so long

_log = structlog.get_logger()


@dataclass(slots=True)
class QuestionCounts:
    """Outcomes of taken checks since the start."""

    asked: int = 0
    decided_meanwhile: int = 0
    given_back: int = 0  # broker unreachable, no room for the message, or producer disconnected


@dataclass(slots=True)
class _Sorted:
    questions: list[ProducerCheck] = field(default_factory=list)
    decided: list[str] = field(default_factory=list)
    put_off: list[str] = field(default_factory=list)
    size: int = 0  # bytes of the questions' messages, as stored in the log

    def has_room_for(self, size: int) -> bool:
        """Return whether one more message fits; the first always does."""
        return not self.questions or self.size + size <= PULL_SIZE_MAX


class Questions:
    """Turns checks into questions.

    Args:
        database: Holds the checks.
        calls: Requests to the brokers.
        clock: The clock that all instances share.
    """

    def __init__(self, database: Database, calls: BrokerCalls, clock: Clock) -> None:
        self.counts = QuestionCounts()
        self._database = database
        self._calls = calls
        self._clock = clock
        self._away: dict[str, float] = {}  # unreachable broker → skip until, monotonic

    def away(self) -> list[str]:
        """Return the brokers whose checks must not be taken just now."""
        now = self._clock.monotonic()
        self._away = {name: until for name, until in self._away.items() if until > now}
        return list(self._away)

    def away_seconds(self) -> float:
        """Return the seconds until one more broker's checks may be taken, or infinity."""
        self.away()
        return min(self._away.values(), default=math.inf) - self._clock.monotonic()

    async def prepare(self, taken: Sequence[AskedCheck]) -> list[ProducerCheck]:
        """Return the questions to ask of *taken*; give back or close the other checks.

        Raises:
            DatabaseUnavailableError: PostgreSQL is unreachable.
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
                    done.decided.append(check.check_id)  # decided long ago, or lost with the disk
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
        """Reopen checks that were taken but not sent."""
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
