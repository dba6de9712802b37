"""The transaction producer and real transaction checkers: what nobody decided is asked about."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator

import anyio.to_thread
import pytest

import eruca
from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE
from support.forked import forking_clusters
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio

SETTINGS = SMALL_STORE | {
    "ERUCA_TXN_CHECKER_TIMEOUT_SECONDS": "0.3",
    "ERUCA_TXN_CHECKER_INTERVAL_SECONDS": "1.5",
    "ERUCA_TXN_CHECKER_CHECKS_MAX": "4",
    "ERUCA_TXN_CHECKER_POLL_SECONDS": "0.1",
}


@pytest.fixture(scope="module")
async def cluster(anyio_backend: str) -> AsyncIterator[LocalCluster]:
    """A cluster of processes, with a checker that loses no time."""
    with forking_clusters():
        async with LocalCluster(brokers=2, txn_checkers=2, settings=SETTINGS) as cluster:
            yield cluster


@pytest.fixture
async def client(cluster: LocalCluster) -> AsyncIterator[eruca.AsyncClient]:
    async with eruca.AsyncClient(cluster.namesrv_urls) as client:
        yield client


class Asked:
    """A check function that keeps what it was asked."""

    def __init__(self, verdict: eruca.Verdict) -> None:
        self.verdict = verdict
        self.checks: list[eruca.TransactionCheck] = []

    async def __call__(self, check: eruca.TransactionCheck) -> eruca.Verdict:
        self.checks.append(check)
        return self.verdict


async def left(producer: eruca.AsyncTransactionProducer, topic: str, body: str) -> str:
    """Leave a transaction undecided and return its id."""
    result = await producer.send_in_transaction(
        eruca.Message(topic, body, keys="k"), lambda _half: "unknown"
    )
    return result.transaction_id


async def state_of(client: eruca.AsyncClient, transaction_id: str, *wanted: str) -> str:
    """Return a transaction's state once it is one of those."""
    detail = await until_told(
        lambda: client.admin.transactions.get(transaction_id), lambda it: it.state in wanted
    )
    return detail.state


def assert_each_was_asked_once(checks: list[eruca.TransactionCheck], ids: list[str]) -> None:
    """Fail unless all of them were asked about, and no check was sent twice.

    Where the machine is busy there may be a further check, under its own number.
    """
    numbered = [(check.transaction_id, check.number) for check in checks]
    assert len(set(numbered)) == len(numbered)
    assert {transaction_id for transaction_id, _ in numbered} == set(ids)


@pytest.mark.parametrize(
    ("verdict", "state"), [("commit", "committed"), ("rollback", "rolled_back")]
)
async def test_what_was_left_is_asked_about_and_decided(
    client: eruca.AsyncClient, topic: str, name: str, verdict: eruca.Verdict, state: str
) -> None:
    asked = Asked(verdict)
    async with client.transaction_producer(name, check=asked) as producer:
        ids = [await left(producer, topic, f"{n}") for n in range(6)]
        for transaction_id in ids:
            assert await state_of(client, transaction_id, "committed", "rolled_back") == state
    detail = await client.admin.transactions.get(ids[0])

    assert_each_was_asked_once(asked.checks, ids)
    assert {(check.message.topic, check.message.text()) for check in asked.checks} == {
        (topic, f"{n}") for n in range(6)
    }
    assert {check.message.message_id for check in asked.checks} == set(ids)
    assert detail.decision is not None
    assert detail.decision.by == "check"
    assert detail.history[-1].by == "check"


async def test_of_what_was_left_exactly_what_a_check_commits_arrives(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    async def half_of_them(check: eruca.TransactionCheck) -> eruca.Verdict:
        return "commit" if int(check.message.text()) % 2 else "rollback"

    async with client.transaction_producer(name, check=half_of_them) as producer:
        ids = [await left(producer, topic, f"{n}") for n in range(8)]
        states = [await state_of(client, each, "committed", "rolled_back") for each in ids]

    assert states == ["rolled_back", "committed"] * 4
    offsets = await client.admin.queues(topic)
    count = sum(queue.max_offset - queue.min_offset for queue in offsets.values())
    arrived: list[str] = []
    async with client.pull_consumer(topics=topic) as consumer:
        while len(arrived) < count:
            arrived += [message.text() for message in await consumer.poll()]
    assert sorted(arrived) == ["1", "3", "5", "7"]


async def test_a_check_while_the_local_code_runs_decides_nothing(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    asked = Asked("rollback")
    async with client.transaction_producer(name, check=asked) as producer:
        async with producer.transaction(eruca.Message(topic, "x")) as transaction:
            await until_told(
                lambda: client.admin.transactions.get(transaction.transaction_id),
                lambda detail: detail.checks >= 2,
            )
        assert transaction.result.is_decided

    assert asked.checks == []


async def test_any_member_of_the_group_is_asked_and_checks_are_shared(
    cluster: LocalCluster, client: eruca.AsyncClient, topic: str, name: str
) -> None:
    """The one that began them has gone, as after a crash."""
    async with client.transaction_producer(name) as producer:
        ids = [await left(producer, topic, f"{n}") for n in range(20)]
    first, second = Asked("commit"), Asked("commit")
    async with (
        client.transaction_producer(name, check=first),
        client.transaction_producer(name, check=second),
    ):
        for transaction_id in ids:
            await state_of(client, transaction_id, "committed")

    assert_each_was_asked_once([*first.checks, *second.checks], ids)


async def test_what_nobody_decides_is_parked_in_the_end(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    asked = Asked("unknown")
    async with client.transaction_producer(name, check=asked) as producer:
        transaction_id = await left(producer, topic, "x")
        assert await state_of(client, transaction_id, "parked") == "parked"
        detail = await client.admin.transactions.get(transaction_id)

    assert [check.number for check in asked.checks] == [1, 2, 3, 4]
    assert detail.decision is not None
    assert detail.decision.by == "limit"


async def test_a_check_function_that_fails_is_asked_again(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    numbers = []

    def check(transaction: eruca.TransactionCheck) -> eruca.Verdict:
        numbers.append(transaction.number)
        if transaction.number == 1:
            raise RuntimeError("the database is away")
        return "commit"

    async with client.transaction_producer(name, check=check) as producer:
        transaction_id = await left(producer, topic, "x")
        await state_of(client, transaction_id, "committed")

    assert numbers == [1, 2]


async def test_producers_turn_to_another_checker_when_theirs_dies(
    cluster: LocalCluster, client: eruca.AsyncClient, topic: str, name: str
) -> None:
    asked = Asked("commit")
    async with client.transaction_producer(name, check=asked) as producer:
        for checker in ("txn-checker", "txn-checker-2"):
            await cluster.kill(checker)
            transaction_id = await left(producer, topic, f"without {checker}")
            await state_of(client, transaction_id, "committed", "parked")
            await cluster.restart(checker)

    assert {check.message.text() for check in asked.checks} == {
        "without txn-checker",
        "without txn-checker-2",
    }


async def test_checks_are_answered_beside_blocking_code_without_async(
    cluster: LocalCluster, client: eruca.AsyncClient, topic: str, name: str
) -> None:
    threads: list[threading.Thread] = []

    def check(_transaction: eruca.TransactionCheck) -> eruca.Verdict:
        threads.append(threading.current_thread())
        return "commit"

    def run() -> None:
        with (
            eruca.Client(cluster.namesrv_urls) as sync_client,
            sync_client.transaction_producer(name, check=check) as producer,
        ):
            result = producer.send_in_transaction(eruca.Message(topic, "x"), lambda _: "unknown")
            done = threading.Event()

            def execute(_half: eruca.HalfMessage) -> eruca.Verdict:
                for _ in range(600):
                    detail = sync_client.admin.transactions.get(result.transaction_id)
                    if detail.state == "committed":
                        done.set()
                        return "rollback"
                    threading.Event().wait(0.05)
                return "commit"

            producer.send_in_transaction(eruca.Message(topic, "y"), execute)
            assert done.is_set()

    await anyio.to_thread.run_sync(run)
    await until(lambda: threads)

    assert threads[0] is not threading.main_thread()
