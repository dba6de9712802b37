"""Call the webhooks of producer groups that prefer to be called.

Checks are taken as a producer takes them. The number of concurrent calls per group is limited, so
that a slow group leaves room for others. A failed call is retried with growing pauses until its
check times out. Then the failure is recorded with the check and with the webhook, and the
transaction's next check starts again. A call in progress when its instance dies counts as failed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import stamina
import structlog

from eruca.contract.errors import (
    DatabaseUnavailableError,
    ErucaError,
)
from eruca.contract.transactions import CheckAnswer, ProducerCheck, WebhookCheck
from eruca_chassis.clock import Clock
from eruca_chassis.loops import BackgroundLoop
from eruca_postgres.database import Database
from eruca_txn_checker.checking.answers import Answers
from eruca_txn_checker.checking.questions import Questions
from eruca_txn_checker.checking.webhook_call import WebhookCaller, WebhookFaultError
from eruca_txn_checker.core.moments import moment, ms_of
from eruca_txn_checker.core.webhook_signing import signed_headers
from eruca_txn_checker.projection.check_rows import (
    WEBHOOK,
    AskedCheck,
    note_fault,
    take_for_webhooks,
)
from eruca_txn_checker.projection.webhook_rows import WebhookRow, get_webhook, note_call

PAUSE_SECONDS: Final = 0.5  # before the second attempt; doubles
PAUSE_SECONDS_MAX: Final = 5.0
RETRY_SECONDS: Final = 2.0  # after the database was unreachable
STOP_SECONDS: Final = 2.0  # for calls in progress at shutdown


@dataclass(slots=True)
class WebhookCounts:
    """Calls since the start."""

    answered: int = 0
    failed: int = 0  # after all attempts
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class WebhookLimits:
    """The settings of webhook calls."""

    calls_max: int
    calls_per_group_max: int
    attempts_max: int


_log = structlog.get_logger()


class Webhooks:
    """The webhook calls of one instance.

    Args:
        database: Holds checks and webhooks.
        questions: Turns checks into questions.
        answers: Takes the answers.
        caller: Makes the calls.
        clock: The clock that all instances share.
        limits: Limits of concurrent calls and of attempts.
        interval_ms: Time from one check of a transaction to the next.
        poll_seconds: Returns how often to look for checks without a notice.
    """

    def __init__(
        self,
        database: Database,
        questions: Questions,
        answers: Answers,
        caller: WebhookCaller,
        clock: Clock,
        *,
        limits: WebhookLimits,
        interval_ms: int,
        poll_seconds: Callable[[], float],
    ) -> None:
        self.counts = WebhookCounts()
        self._database = database
        self._questions = questions
        self._answers = answers
        self._caller = caller
        self._clock = clock
        self._limits = limits
        self._interval_ms = interval_ms
        self._calls: set[asyncio.Task[None]] = set()
        self._by_group: Counter[str] = Counter()
        self._poll_seconds = poll_seconds
        self._loop = BackgroundLoop("webhooks", self._step, period_seconds=RETRY_SECONDS)

    def start(self) -> None:
        """Start looking for checks."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop looking for checks; let calls in progress finish, up to a limit."""
        await self._loop.stop()
        if self._calls:
            _, left = await asyncio.wait(self._calls, timeout=STOP_SECONDS)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        await self._caller.close()

    def wake(self) -> None:
        """Announce open checks."""
        self._loop.wake()

    @property
    def under_way(self) -> int:
        """Number of calls in progress."""
        return len(self._calls)

    async def _step(self) -> float | None:
        try:
            while len(self._calls) < self._limits.calls_max and (check := await self._next()):
                self._by_group[check.producer_group] += 1
                task = asyncio.create_task(self._call(check), name=f"webhook {check.check_id}")
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)
        except DatabaseUnavailableError:
            return None  # readiness reports it
        return min(self._poll_seconds(), self._questions.away_seconds())

    async def _next(self) -> AskedCheck | None:
        per_group = self._limits.calls_per_group_max
        busy = [group for group, count in self._by_group.items() if count >= per_group]
        async with self._database.transaction() as connection:
            taken = await take_for_webhooks(
                connection,
                now_ms=self._clock.now_ms(),
                interval_ms=self._interval_ms,
                limit=1,
                without_groups=busy,
                without_brokers=self._questions.away(),
            )
        return taken[0] if taken else None

    async def _call(self, check: AskedCheck) -> None:
        try:
            async with self._reported(check):
                await self._ask(check)
        finally:
            self._by_group[check.producer_group] -= 1
            self._by_group += Counter()  # drops groups whose count is 0
            self._loop.wake()

    async def _ask(self, check: AskedCheck) -> None:
        questions = await self._questions.prepare([check])
        if not questions:
            return
        async with self._database.transaction() as connection:
            webhook = await get_webhook(connection, check.producer_group)
        if webhook is None or not webhook.is_enabled:
            await self._questions.give_back([check.check_id])
            return
        answer = await self._answer(webhook, questions[0])
        self.counts.answered += 1
        async with self._database.transaction() as connection:
            now_ms = self._clock.now_ms()
            await note_call(connection, check.producer_group, now_ms=now_ms, error=None)
        named = answer.model_copy(update={"client_id": answer.client_id or WEBHOOK})
        await self._answers.take(check.check_id, named)

    async def _answer(self, webhook: WebhookRow, question: ProducerCheck) -> CheckAnswer:
        """Call until an answer comes, the attempts are used up, or the next check is due."""
        left_ms = ms_of(question.answer_until) - self._clock.now_ms()

        def may_pass(error: Exception) -> bool:
            return isinstance(error, WebhookFaultError) and not error.is_final

        async for attempt in stamina.retry_context(
            on=may_pass,
            attempts=self._limits.attempts_max,
            timeout=max(left_ms / 1000, 0.001),  # stamina takes 0 for no time-out
            wait_initial=PAUSE_SECONDS,
            wait_max=PAUSE_SECONDS_MAX,
            wait_jitter=PAUSE_SECONDS / 2,
        ):
            with attempt:
                self.counts.attempts += 1
                now_ms = self._clock.now_ms()
                body = WebhookCheck(timestamp=moment(now_ms), data=question).model_dump_json()
                signed = signed_headers(
                    webhook.secret, question.check_id, now_ms // 1000, body.encode()
                )
                return await self._caller.call(
                    webhook.url, signed, body.encode(), timeout=webhook.timeout_seconds
                )
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def _reported(self, check: AskedCheck) -> AsyncIterator[None]:
        """Record a failure with the check and with the webhook."""
        try:
            yield
        except WebhookFaultError as error:
            self.counts.failed += 1
            _log.warning("webhook failed", producer_group=check.producer_group, why=str(error))
            await self._note(check, str(error))
        except ErucaError as error:
            # Not the webhook's fault: the broker is unreachable, or the opposite was decided.
            _log.warning("check not forwarded", transaction=check.transaction_id, why=str(error))

    async def _note(self, check: AskedCheck, fault: str) -> None:
        try:
            async with self._database.transaction() as connection:
                await note_fault(connection, check.check_id, fault)
                await note_call(
                    connection, check.producer_group, now_ms=self._clock.now_ms(), error=fault
                )
        except DatabaseUnavailableError:
            return  # the failure is in the log of this process
