"""Transactions of a block of code: decided once, at its end or before, and delivered."""

from __future__ import annotations

import pytest

import eruca
from eruca.aio.http.transport import NotConnectedError
from eruca.contract.errors import (
    ErucaError,
    OverloadedError,
    TopicNotFoundError,
    TransactionIdInUseError,
    TransportError,
)
from support.http_peers import OK, answering, peer
from support.scripted_transactions import ScriptedBrokers, transaction_client
from support.transaction_producers import MESSAGE, decisions
from support.waiting import until

pytestmark = pytest.mark.anyio

HTTPX_CONNECTIONS_MAX = 100  # of a client of httpx, by default


# The context manager


async def test_a_block_commits_at_its_end() -> None:
    client, hot = transaction_client(ScriptedBrokers())
    async with client, client.transaction_producer("group") as producer:
        async with producer.transaction(MESSAGE) as transaction:
            assert transaction.half.transaction_id == transaction.transaction_id
            assert decisions(hot.requests) == []

        assert transaction.result.is_decided
    assert decisions(hot.requests) == ["commit"]


async def test_a_block_may_decide_by_itself() -> None:
    client, hot = transaction_client(ScriptedBrokers())
    async with client, client.transaction_producer("group") as producer:
        async with producer.transaction(MESSAGE) as transaction:
            result = await transaction.rollback(reason="no stock")
        assert transaction.result == result
        assert result.decision is not None
        assert result.decision.reason == "no stock"

        async with producer.transaction(MESSAGE) as transaction:
            await transaction.conclude("unknown")
        assert not transaction.result.is_decided

    assert decisions(hot.requests) == ["rollback"]


async def test_a_block_that_raises_leaves_it_or_rolls_back() -> None:
    client, hot = transaction_client(ScriptedBrokers())
    async with client, client.transaction_producer("group") as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(MESSAGE):
                raise ZeroDivisionError
        assert decisions(hot.requests) == []
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(MESSAGE, on_error="rollback"):
                raise ZeroDivisionError

    assert decisions(hot.requests) == ["rollback"]


async def test_an_error_after_the_decision_does_not_change_it() -> None:
    client, hot = transaction_client(ScriptedBrokers())
    async with client, client.transaction_producer("group") as producer:
        transaction = producer.transaction(MESSAGE, on_error="rollback")
        with pytest.raises(ZeroDivisionError):
            await commit_and_fail(transaction)
        with pytest.raises(eruca.ValidationError, match="cannot be concluded with rollback"):
            await transaction.rollback()
        assert await transaction.commit() is transaction.result

    assert decisions(hot.requests) == ["commit"]


async def test_what_was_left_may_be_decided_later() -> None:
    client, hot = transaction_client(ScriptedBrokers())
    async with client, client.transaction_producer("group") as producer:
        async with producer.transaction(MESSAGE) as transaction:
            await transaction.conclude("unknown")
        assert (await transaction.commit()).is_decided

    assert decisions(hot.requests) == ["commit"]


async def test_a_transaction_is_entered_once_and_asked_when_it_knows() -> None:
    client, _ = transaction_client(ScriptedBrokers())
    async with client, client.transaction_producer("group") as producer:
        transaction = producer.transaction(MESSAGE)
        with pytest.raises(eruca.ClosedError, match="not begun"):
            transaction.half  # noqa: B018
        async with transaction:
            with pytest.raises(eruca.ClosedError, match="not concluded"):
                transaction.result  # noqa: B018
        with pytest.raises(eruca.ClosedError, match="already"):
            async with transaction:
                pass


async def commit_and_fail(transaction: eruca.AsyncTransaction) -> None:
    async with transaction:
        await transaction.commit()
        raise ZeroDivisionError


# Decisions


async def test_a_decision_whose_answer_was_lost_is_repeated() -> None:
    brokers = ScriptedBrokers()
    client, hot = transaction_client(brokers)
    async with (
        client,
        client.transaction_producer("group") as producer,
        producer.transaction(MESSAGE),
    ):
        brokers.lose_answers(TransportError("gone"))
        brokers.refuse(OverloadedError("full"), NotConnectedError("refused"))

    assert decisions(hot.requests) == ["commit"] * 4


async def test_a_decision_that_cannot_be_delivered_is_left_and_known() -> None:
    brokers = ScriptedBrokers()
    client, _ = transaction_client(brokers)
    async with (
        client,
        client.transaction_producer("group", decision_timeout_seconds=0.1) as producer,
    ):
        async with producer.transaction(MESSAGE) as transaction:
            brokers.refuse(*[NotConnectedError("refused")] * 100)
        assert (transaction.result.verdict, transaction.result.is_decided) == ("commit", False)
        assert producer._book.answer(transaction.transaction_id) == "commit"

        brokers.faults.clear()
        assert (await transaction.commit()).is_decided
        assert producer._book.answer(transaction.transaction_id) is None


async def test_what_could_not_be_begun_under_a_made_id_is_rolled_back_where_it_is_stored() -> None:
    brokers = ScriptedBrokers()
    brokers.lose_answers(TransportError("gone"))
    client, _ = transaction_client(brokers)
    async with client, client.transaction_producer("group", retries_max=0) as producer:
        with pytest.raises(eruca.SendFailedError):
            await producer.send_in_transaction(MESSAGE, lambda _half: "commit")

        [(_, transaction_id)] = brokers.begun
        assert producer._book.answer(transaction_id) == "rollback"


@pytest.mark.parametrize(
    "error", [TransportError("gone"), TransactionIdInUseError("another process works under it")]
)
async def test_what_could_not_be_begun_under_an_id_of_the_programs_own_is_asked_about(
    error: ErucaError,
) -> None:
    """It may have been begun before this process was started, or elsewhere, and its work done."""
    brokers = ScriptedBrokers()
    brokers.lose_answers(error)
    client, _ = transaction_client(brokers)
    own = eruca.Message("orders", "an order", message_id="order-7")
    async with client, client.transaction_producer("group", retries_max=0) as producer:
        with pytest.raises((eruca.SendFailedError, TransactionIdInUseError)):
            await producer.send_in_transaction(own, lambda _half: "commit")

        assert producer._book.answer("order-7") is None


async def test_a_commit_that_is_not_delivered_outlives_a_failed_repetition() -> None:
    brokers = ScriptedBrokers()
    client, _ = transaction_client(brokers)
    own = eruca.Message("orders", "an order", message_id="order-7")
    async with (
        client,
        client.transaction_producer(
            "group", decision_timeout_seconds=0.1, retries_max=0
        ) as producer,
    ):
        async with producer.transaction(own) as transaction:
            brokers.refuse(*[NotConnectedError("refused")] * 100)
        assert not transaction.result.is_decided
        with pytest.raises(eruca.SendFailedError):
            await producer.send_in_transaction(own, lambda _half: "unknown")

        assert producer._book.answer("order-7") == "commit"


async def test_a_decision_that_comes_too_late_says_what_was_decided() -> None:
    brokers = ScriptedBrokers()
    client, _ = transaction_client(brokers)
    async with client, client.transaction_producer("group") as producer:
        with pytest.raises(eruca.AlreadyDecidedError) as caught:
            async with producer.transaction(MESSAGE) as transaction:
                brokers.decided[transaction.transaction_id] = "rollback"

    assert caught.value.decision == {"outcome": "rollback", "by": "check"}


async def test_a_rollback_that_comes_too_late_does_not_hide_the_local_error() -> None:
    brokers = ScriptedBrokers()
    client, _ = transaction_client(brokers)
    async with client, client.transaction_producer("group") as producer:
        transaction = producer.transaction(MESSAGE, on_error="rollback")

        async def commit_elsewhere_and_fail() -> None:
            async with transaction:
                brokers.decided[transaction.transaction_id] = "commit"
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as caught:
            await commit_elsewhere_and_fail()

    assert "does not have the intended outcome: it was decided" in caught.value.__notes__[0]


async def test_a_transaction_that_the_broker_has_lost_is_an_error() -> None:
    brokers = ScriptedBrokers()
    client, _ = transaction_client(brokers)
    async with client, client.transaction_producer("group") as producer:
        with pytest.raises(eruca.TransactionNotFoundError):
            async with producer.transaction(MESSAGE):
                brokers.begun.clear()
        with pytest.raises(TopicNotFoundError):
            async with producer.transaction(MESSAGE):
                brokers.refuse(TopicNotFoundError("it was deleted"))


# The producer


async def test_settings_are_checked() -> None:
    client, _ = transaction_client(ScriptedBrokers())
    async with client:
        for settings in (
            {"group": "no such group!"},
            {"check": "no function"},
            {"check_concurrency": 0},
            {"checker_urls": "nonsense"},
            {"retries_max": -1},
            {"send_timeout_seconds": 0},
            {"decision_timeout_seconds": float("inf")},
        ):
            with pytest.raises(eruca.ValidationError):
                client.transaction_producer(**({"group": "group"} | settings))
        async with client.transaction_producer("group") as producer:
            for options in (
                {"check_immunity_seconds": -1},
                {"on_error": "commit"},
                {"timeout_seconds": 0},
            ):
                with pytest.raises(eruca.ValidationError):
                    producer.transaction(MESSAGE, **options)


async def test_producers_that_wait_for_checks_keep_nobody_else_from_being_asked() -> None:
    """Each of them has a request that the checker holds, on a connection of its own."""
    async with peer(answering()) as checker, eruca.AsyncClient("http://namesrv") as client:
        for _ in range(HTTPX_CONNECTIONS_MAX):
            producer = client.transaction_producer(
                "group", check=lambda _: "commit", checker_urls=checker.url
            )
            await producer.start()
        await until(lambda: checker.connection_count >= HTTPX_CONNECTIONS_MAX)

        async with peer(answering(OK)) as other:
            answer = await client.context.transport.request("GET", other.url, "/", timeout=20)

    assert answer.body == b"ok"


async def test_a_closed_producer_begins_nothing_and_still_decides() -> None:
    client, hot = transaction_client(ScriptedBrokers())
    async with client:
        producer = client.transaction_producer("group")
        later = producer.transaction(MESSAGE)
        async with producer.transaction(MESSAGE):
            await producer.close()
        with pytest.raises(eruca.ClosedError):
            producer.transaction(MESSAGE)
        with pytest.raises(eruca.ClosedError):
            async with later:
                pass

    assert decisions(hot.requests) == ["commit"]


async def test_a_client_that_is_closed_ends_its_transaction_producers() -> None:
    client, _ = transaction_client(ScriptedBrokers())
    async with client:
        producer = client.transaction_producer("group", check=lambda _: "commit")
        await producer.start()
        await producer.start()

    with pytest.raises(eruca.ClosedError):
        await producer.start()
    with pytest.raises(eruca.ClosedError):
        client.transaction_producer("group")
