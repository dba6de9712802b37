"""Answer checks: the outcomes of transactions that this producer group left undecided.

One transaction checker holds one request for checks. A separate task answers each check, so a slow
check delays no other. The loop requests only as many checks as it can begin. If a checker fails,
the loop uses another one. While none answers, the loop retries after a pause that grows.

If this producer itself knows the outcome (:mod:`eruca.core.producing.transaction_book`), it answers
without calling the program. A check function that raises, returns an invalid answer or times out
counts as ``unknown``: the transaction will be checked again.

Source: RocketMQ 5.3, ``DefaultMQProducerImpl.checkTransactionState``, which has one thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from eruca.aio.local_calls import LocalCalls, ends_caller
from eruca.contract.errors import (
    AlreadyDecidedError,
    CheckNotFoundError,
    ErucaError,
    InternalError,
    TimeoutExpiredError,
    TransportError,
    UnavailableError,
)
from eruca.contract.transactions import CheckAnswer
from eruca.core.failure_text import text_of_error
from eruca.core.producing.transactions import transaction_check, verdict_of

if TYPE_CHECKING:
    from eruca.aio.cluster.transaction_api import CheckApi
    from eruca.aio.transactions.checkers import Checkers
    from eruca.contract.transactions import CheckOutcome, ProducerCheck
    from eruca.core.producing.transaction_book import TransactionBook
    from eruca.core.producing.transaction_settings import CheckFunction
    from eruca.core.producing.transactions import Verdict

WAIT_SECONDS: Final = 25.0  # how long a request is held; within WAIT_SECONDS_MAX
REST_SECONDS_MIN: Final = 0.5  # after a failure; doubles
REST_SECONDS_MAX: Final = 15.0
MORE_ROOM_SECONDS: Final = 0.01  # if there is little room: so that a request brings several checks
EMPTY_SECONDS_MIN: Final = 0.2  # from one answer without a check to the next request
ANSWER_SECONDS_MIN: Final = 1.0  # for a late answer, which may still count
CHECK_SECONDS_MIN: Final = 0.5  # for a check function
_ANSWER_PART: Final = 0.2  # of a check's time: reserved for sending the answer

_MAY_BE_REPEATED: Final = (TransportError, TimeoutExpiredError, UnavailableError, InternalError)

_logger = logging.getLogger(__name__)


class CheckLoop:
    """Receives checks and answers them until it is closed.

    Args:
        api: Requests to the checkers.
        checkers: Selects the checker.
        book: The outcomes that this producer knows itself.
        check: The program's function.
        concurrency: Maximum number of checks at a time.
        client_id: The id of the answering client.
    """

    def __init__(
        self,
        api: CheckApi,
        checkers: Checkers,
        book: TransactionBook,
        check: CheckFunction,
        *,
        concurrency: int,
        client_id: str,
    ) -> None:
        self._api = api
        self._checkers = checkers
        self._book = book
        self._check = check
        self._client_id = client_id
        self._calls = LocalCalls(concurrency, "eruca check")
        self._concurrency = concurrency
        self._room = concurrency
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._answering: set[asyncio.Task[None]] = set()
        self._taking = asyncio.create_task(self._take(), name="eruca takes checks")
        self._taking.add_done_callback(_log_defect)
        self._is_failing = False

    async def close(self) -> None:
        """Receive no more checks, and drop the running ones: they will be checked again."""
        tasks = {self._taking, *self._answering}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._calls.close()

    async def _take(self) -> None:
        rest = REST_SECONDS_MIN
        while True:
            await self._has_room.wait()
            if self._room < self._concurrency // 2:
                await asyncio.sleep(MORE_ROOM_SECONDS)
            asked_at = time.monotonic()
            url = None
            try:
                url = await self._checkers.url()
                taken = await self._api.take(url, count_max=self._room, wait=WAIT_SECONDS)
            except ErucaError as error:
                self._log_failure(url, error)
                if url is None or not self._checkers.turn_away(url):
                    await asyncio.sleep(max(rest, error.retry_after_seconds or 0.0))
                    rest = min(2 * rest, REST_SECONDS_MAX)
                continue
            rest = REST_SECONDS_MIN
            self._log_success(url)
            for check in taken.checks:
                self._begin(url, check)
            if not taken.checks:  # not held: for example, the checker is stopping
                spent = time.monotonic() - asked_at
                await asyncio.sleep(max(EMPTY_SECONDS_MIN - spent, 0))

    def _begin(self, url: str, check: ProducerCheck) -> None:
        self._take_room()
        name = f"eruca answers a check of {check.transaction_id}"
        task = asyncio.create_task(self._settle(url, check), name=name)
        self._answering.add(task)
        task.add_done_callback(self._on_answered)

    def _on_answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        self._give_room()
        _log_defect(task)

    def _take_room(self) -> None:
        self._room -= 1
        if self._room <= 0:
            self._has_room.clear()

    def _give_room(self) -> None:
        self._room += 1
        if self._room > 0:
            self._has_room.set()

    async def _settle(self, url: str, check: ProducerCheck) -> None:
        """Find the outcome of a transaction, and send it."""
        seconds = max((check.answer_until - check.asked_at).total_seconds(), 0.0)
        began_at = time.monotonic()
        reason = None
        verdict = self._book.answer(check.transaction_id)
        if verdict is None:
            verdict, reason = await self._asked(
                check, max(seconds * (1 - _ANSWER_PART), CHECK_SECONDS_MIN)
            )
        answer = CheckAnswer(answer=verdict, client_id=self._client_id, reason=reason)
        left = max(seconds - (time.monotonic() - began_at), ANSWER_SECONDS_MIN)
        await self._tell(url, check, answer, time.monotonic() + left)

    async def _asked(self, check: ProducerCheck, seconds: float) -> tuple[Verdict, str | None]:
        """Return the verdict of the program's check function, and the reason for ``unknown``."""
        try:
            future = self._calls.start(self._check, transaction_check(check))
            try:
                done, _ = await asyncio.wait([future], timeout=seconds)
            except asyncio.CancelledError:
                future.cancel()
                raise
            if not done:
                return self._too_late(check, future, seconds)
            returned = future.result()
            if inspect.isawaitable(returned):
                returned = await asyncio.wait_for(returned, seconds)
            return verdict_of(returned), None
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            # sys.exit ends only a thread; raised here, it would end the event loop.
            if ends_caller(error):
                raise
            _logger.warning(
                "the check function failed for transaction %s", check.transaction_id, exc_info=error
            )
            return "unknown", text_of_error(error)

    def _too_late(
        self, check: ProducerCheck, future: asyncio.Future[Any], seconds: float
    ) -> tuple[Verdict, str]:
        text = f"the check function took longer than {seconds:.3g} s"
        _logger.warning("%s: transaction %s", text, check.transaction_id)
        if isinstance(future, asyncio.Task):
            future.cancel()
        self._take_room()  # a thread continues; its room must not be given twice
        future.add_done_callback(self._on_late_end)
        return "unknown", text

    def _on_late_end(self, future: asyncio.Future[Any]) -> None:
        self._give_room()
        if not future.cancelled():
            future.exception()  # nobody waits for it

    async def _tell(
        self, url: str, check: ProducerCheck, answer: CheckAnswer, deadline: float
    ) -> None:
        rest = REST_SECONDS_MIN
        while True:
            try:
                outcome = await self._api.answer(url, check.check_id, answer)
            except _MAY_BE_REPEATED as error:
                if time.monotonic() + rest >= deadline:
                    _logger.warning(
                        "the answer to check %d of transaction %s is lost: %s",
                        check.number,
                        check.transaction_id,
                        error,
                    )
                    return
            except (AlreadyDecidedError, CheckNotFoundError) as error:
                self._book.settle(check.transaction_id)
                self._log_refusal(check, answer, error)
                return
            else:
                self._log_outcome(check, answer, outcome)
                return
            await asyncio.sleep(rest)
            rest = min(2 * rest, REST_SECONDS_MAX)

    def _log_outcome(
        self, check: ProducerCheck, answer: CheckAnswer, outcome: CheckOutcome
    ) -> None:
        if outcome.state != "pending":
            self._book.settle(check.transaction_id)
        _logger.info(
            "check %d of transaction %s was answered %s: it is %s",
            check.number,
            check.transaction_id,
            answer.answer,
            outcome.state,
        )

    def _log_refusal(self, check: ProducerCheck, answer: CheckAnswer, error: ErucaError) -> None:
        _logger.warning(
            "check %d of transaction %s was answered %s, which does not count: %s",
            check.number,
            check.transaction_id,
            answer.answer,
            error,
        )

    def _log_failure(self, url: str | None, error: ErucaError) -> None:
        level = logging.DEBUG if self._is_failing else logging.WARNING
        _logger.log(
            level, "cannot receive checks from %s: %s", url or "any transaction checker", error
        )
        self._is_failing = True

    def _log_success(self, url: str) -> None:
        if self._is_failing:
            _logger.warning("receiving checks from %s works again", url)
        self._is_failing = False


def _log_defect(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _logger.error("%s failed", task.get_name(), exc_info=error)
