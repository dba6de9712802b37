"""Answering checks: from the book, by the program's function, and in spite of failures."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import eruca
from eruca.contract.errors import (
    AlreadyDecidedError,
    CheckNotFoundError,
    NotReadyError,
    UnavailableError,
)
from support.scripted_transactions import ScriptedBrokers, ScriptedChecker, transaction_client
from support.scripted_transport import json_answer
from support.waiting import stays, until

pytestmark = pytest.mark.anyio

MESSAGE = eruca.Message("orders", "an order")


@asynccontextmanager
async def answering(
    check: Callable[[eruca.TransactionCheck], Any],
    *,
    checkers: dict[str, ScriptedChecker] | None = None,
    **settings: Any,  # noqa: ANN401
) -> AsyncIterator[tuple[eruca.AsyncTransactionProducer, ScriptedChecker]]:
    """Run a producer that answers checks of the checker ``c``."""
    checker = ScriptedChecker()
    known = checkers or {"c": checker}
    client, _ = transaction_client(ScriptedBrokers(), checkers=known)
    async with client, client.transaction_producer("group", check=check, **settings) as producer:
        yield producer, checker


def answers(checker: ScriptedChecker) -> dict[str, str]:
    return {check_id: answer["answer"] for check_id, answer in checker.answers}


async def test_the_check_function_is_asked_and_its_answer_told() -> None:
    asked: list[eruca.TransactionCheck] = []

    def check(transaction: eruca.TransactionCheck) -> eruca.Verdict:
        asked.append(transaction)
        return "commit"

    async with answering(check) as (producer, checker):
        checker.ask("t1", number=2)
        await until(lambda: checker.answers)
        answer = {"answer": "commit", "client_id": producer.client_id, "reason": None}
        assert checker.answers == [("t1.2", answer)]
        assert checker.takes[0] == {
            "client_id": producer.client_id,
            "count_max": "16",
            "wait_seconds": "25.0",
        }

    [transaction] = asked
    assert (transaction.transaction_id, transaction.number) == ("t1", 2)


async def test_async_check_functions_run_on_the_event_loop() -> None:
    async def check(_: eruca.TransactionCheck) -> eruca.Verdict:
        await asyncio.sleep(0)
        return "rollback"

    async with answering(check) as (_, checker):
        checker.ask("t1")
        await until(lambda: checker.answers)

    assert answers(checker) == {"t1.1": "rollback"}


async def test_a_plain_function_may_return_what_is_to_be_awaited() -> None:
    async def later() -> eruca.Verdict:
        return "commit"

    async with answering(lambda _: later()) as (_, checker):
        checker.ask("t1")
        await until(lambda: checker.answers)

    assert answers(checker) == {"t1.1": "commit"}


async def test_a_slow_check_holds_up_no_other_and_no_more_are_taken_than_there_is_room_for() -> (
    None
):
    go_on = threading.Event()

    def check(transaction: eruca.TransactionCheck) -> eruca.Verdict:
        if transaction.transaction_id == "slow":
            assert go_on.wait(20)
        return "commit"

    async with answering(check, check_concurrency=2) as (_, checker):
        checker.ask("slow")
        for number in range(5):
            checker.ask(f"quick-{number}")
        await until(lambda: len(checker.answers) == 5)
        assert "slow.1" not in answers(checker)
        assert checker.takes[-1]["count_max"] == "1"
        go_on.set()
        await until(lambda: len(checker.answers) == 6)

    assert checker.takes[0]["count_max"] == "2"


async def test_a_check_while_the_local_code_runs_is_unknown_and_then_what_it_said() -> None:
    asked: list[str] = []
    async with answering(lambda check: asked.append(check.transaction_id)) as (producer, checker):
        async with producer.transaction(MESSAGE) as transaction:
            checker.ask(transaction.transaction_id, number=1)
            await until(lambda: len(checker.answers) == 1)
        producer._book.begin("undelivered")
        producer._book.conclude("undelivered", "rollback")
        checker.ask("undelivered")
        await until(lambda: len(checker.answers) == 2)
        assert producer._book.answer("undelivered") is None

    assert [answer["answer"] for _, answer in checker.answers] == ["unknown", "rollback"]
    assert asked == []


async def test_of_what_it_left_undecided_the_program_is_asked() -> None:
    async with answering(lambda _: "commit") as (producer, checker):
        result = await producer.send_in_transaction(MESSAGE, lambda _half: "unknown")
        checker.ask(result.transaction_id)
        await until(lambda: checker.answers)

    assert answers(checker) == {f"{result.transaction_id}.1": "commit"}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (lambda _: None, None),
        (lambda _: True, "ValidationError: expected a verdict on a transaction, found True"),
        (lambda _: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
async def test_a_function_that_fails_knows_nothing(
    said: Callable[[object], Any], reason: str | None
) -> None:
    async with answering(said) as (_, checker):
        checker.ask("t1")
        await until(lambda: checker.answers)

    [(_, answer)] = checker.answers
    assert answer["answer"] == "unknown"
    assert (answer["reason"] or "").startswith(reason or "")


async def test_a_function_that_would_end_the_program_knows_nothing() -> None:
    def check(transaction: eruca.TransactionCheck) -> eruca.Verdict:
        if transaction.transaction_id == "t1":
            sys.exit("nobody asked for that")
        if transaction.transaction_id == "t2":
            raise asyncio.CancelledError
        return "commit"

    async with answering(check) as (_, checker):
        checker.ask("t1")
        await until(lambda: len(checker.answers) == 1)
        checker.ask("t2")
        await until(lambda: len(checker.answers) == 2)
        checker.ask("t3")
        await until(lambda: len(checker.answers) == 3)

    assert answers(checker) == {"t1.1": "unknown", "t2.1": "unknown", "t3.1": "commit"}


async def test_an_async_function_that_was_cancelled_by_itself_knows_nothing() -> None:
    async def check(_: eruca.TransactionCheck) -> eruca.Verdict:
        raise asyncio.CancelledError

    async with answering(check) as (_, checker):
        checker.ask("t1")
        await until(lambda: checker.answers)

    assert answers(checker) == {"t1.1": "unknown"}


async def test_a_function_that_takes_too_long_knows_nothing_and_keeps_its_place() -> None:
    go_on = threading.Event()

    def check(transaction: eruca.TransactionCheck) -> eruca.Verdict:
        if transaction.transaction_id == "stuck":
            assert go_on.wait(20)
        return "commit"

    async with answering(check, check_concurrency=3) as (producer, checker):
        checker.ask("stuck", seconds=0)
        await until(lambda: checker.answers)
        checker.ask("t1")
        await until(lambda: len(checker.answers) == 2)
        assert [take["count_max"] for take in checker.takes] == ["3", "2", "1"]
        go_on.set()
        loop = producer._check_loop
        assert loop is not None
        await until(lambda: loop._room == 3)
        checker.ask("t2")
        await until(lambda: checker.takes[-1]["count_max"] == "2")

    assert answers(checker)["stuck.1"] == "unknown"
    assert "took longer than" in checker.answers[0][1]["reason"]


async def test_an_async_function_that_takes_too_long_is_cancelled() -> None:
    was_cancelled = asyncio.Event()

    async def check(_: eruca.TransactionCheck) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    async with answering(check) as (_, checker):
        checker.ask("t1", seconds=0)
        await until(lambda: checker.answers)
        await was_cancelled.wait()

    assert answers(checker) == {"t1.1": "unknown"}


async def test_an_answer_is_repeated_until_it_arrives() -> None:
    async with answering(lambda _: "commit") as (_, checker):
        checker.answer_faults.append(NotReadyError("starting"))
        checker.ask("t1")
        await until(lambda: checker.answers)

    assert answers(checker) == {"t1.1": "commit"}


@pytest.mark.parametrize(
    "error", [AlreadyDecidedError("it was rolled back"), CheckNotFoundError("forgotten")]
)
async def test_an_answer_that_does_not_count_is_logged(
    error: eruca.ErucaError, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "eruca")
    async with answering(lambda _: "commit") as (_, checker):
        checker.answer_faults.append(error)
        checker.ask("t1")
        await until(lambda: "does not count" in caplog.text)

    assert error.detail in caplog.text


async def test_an_answer_that_never_arrives_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "eruca")
    async with answering(lambda _: "commit") as (_, checker):
        checker.answer_faults.extend([UnavailableError("gone")] * 20)
        checker.ask("t1", seconds=0)
        await until(lambda: "is lost" in caplog.text)


async def test_a_checker_that_fails_is_turned_away_from() -> None:
    first, second = ScriptedChecker(), ScriptedChecker()
    checkers = {"c": first, "d": second}
    for checker in checkers.values():
        checker.faults.append(NotReadyError("no database"))
        checker.ask("t1")
    async with answering(lambda _: "commit", checkers=checkers):
        await until(lambda: first.takes and second.takes)
        await until(lambda: first.answers or second.answers)

    assert 2 <= len(first.takes) + len(second.takes) <= 5


async def test_a_producer_without_a_check_function_takes_no_checks() -> None:
    checker = ScriptedChecker()
    client, _ = transaction_client(ScriptedBrokers(), checkers={"c": checker})
    async with client, client.transaction_producer("group") as producer:
        await producer.send_in_transaction(MESSAGE, lambda _half: "commit")

    assert checker.takes == []


async def test_that_there_is_no_checker_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "eruca")
    client, _ = transaction_client(ScriptedBrokers())
    async with client, client.transaction_producer("group", check=lambda _: "commit") as producer:
        await until(lambda: "no transaction checker is known" in caplog.text)
        result = await producer.send_in_transaction(MESSAGE, lambda _half: "commit")

    assert result.is_decided
    assert caplog.text.count("no transaction checker is known") == 1


async def test_a_checker_that_answers_at_once_with_nothing_is_not_asked_all_the_time() -> None:
    client, _ = transaction_client(ScriptedBrokers(), checkers={"c": (checker := _Empty())})
    async with client, client.transaction_producer("group", check=lambda _: "commit"):
        await until(lambda: checker.takes)
        await stays(lambda: len(checker.takes) <= 4, for_seconds=0.5)


async def test_closing_drops_what_is_in_hand() -> None:
    was_cancelled = asyncio.Event()
    begun = asyncio.Event()

    async def check(_: eruca.TransactionCheck) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    async with answering(check) as (_, checker):
        checker.ask("t1")
        await begun.wait()

    await was_cancelled.wait()
    assert checker.answers == []


class _Empty(ScriptedChecker):
    async def _take(self, query: dict[str, str]) -> Any:  # noqa: ANN401
        self.takes.append(query)
        return json_answer({"checks": []})
