"""The transaction producer against real brokers: what consumers see, and what brokers remember."""

from __future__ import annotations

import asyncio
import threading

import anyio.to_thread
import httpx
import pytest

import eruca
from eruca.contract.errors import TransactionIdInUseError
from support.in_process_cluster import InProcessCluster
from support.received import received

pytestmark = pytest.mark.anyio


async def test_what_is_committed_is_delivered_and_what_is_rolled_back_never(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    async with client.transaction_producer(name) as producer:
        for number in range(10):
            verdict: eruca.Verdict = "rollback" if number % 3 else "commit"
            result = await producer.send_in_transaction(
                eruca.Message(topic, str(number), tag="t", keys=f"k{number}"),
                lambda _half, verdict=verdict: verdict,  # type: ignore[misc]
            )
            assert result.is_decided
        async with client.producer() as plain:
            await plain.send_many(
                [
                    eruca.Message(topic, "end"),
                    *[eruca.Message(topic, "end", sharding_key=str(n)) for n in range(20)],
                ]
            )
    messages = await received(client, topic, 4 + 21)

    assert sorted(m.text() for m in messages if m.text() != "end") == ["0", "3", "6", "9"]
    assert {m.tag for m in messages if m.text() != "end"} == {"t"}


async def test_many_at_once_share_requests_and_each_has_its_own_outcome(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    used = eruca.Message(topic, "used", message_id=f"{name}-used")
    async with client.transaction_producer(name) as producer:
        place = (await producer.send_in_transaction(used, lambda _half: "rollback")).half.queue

        async def send(number: int) -> eruca.TransactionResult:
            message = eruca.Message(topic, str(number)) if number % 10 else used

            async def execute(_half: eruca.HalfMessage) -> eruca.Verdict:
                return "commit" if number % 3 else "rollback"

            queue = None if number % 10 else place  # of the broker that knows it
            return await producer.send_in_transaction(message, execute, queue=queue)

        results = await asyncio.gather(
            *(send(number) for number in range(100)), return_exceptions=True
        )
    failed = [number for number, result in enumerate(results) if isinstance(result, Exception)]
    committed = [str(n) for n in range(100) if n % 10 and n % 3]
    messages = await received(client, topic, len(committed))

    assert failed == list(range(0, 100, 10))
    assert {type(results[number]) for number in failed} == {eruca.AlreadyDecidedError}
    assert sorted(message.text() for message in messages) == sorted(committed)
    assert len({message.message_id for message in messages}) == len(committed)


async def test_decisions_that_nobody_awaits_are_delivered_all_the_same(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    async with client.transaction_producer(name, await_decisions=False) as producer:

        async def send(number: int) -> None:
            result = await producer.send_in_transaction(
                eruca.Message(topic, str(number)),
                lambda _half: "commit" if number % 3 else "rollback",
            )
            assert not result.is_decided

        await asyncio.gather(*map(send, range(30)))
    committed = sorted(str(number) for number in range(30) if number % 3)

    assert sorted(m.text() for m in await received(client, topic, len(committed))) == committed
    assert [t async for t in client.admin.transactions.undecided(producer_group=name)] == []


async def test_committed_messages_are_finished_one_by_one_like_any_other(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    consumer = client.simple_consumer(topic, topic, start="earliest")
    async with client.transaction_producer(name) as producer:
        await producer.send_in_transaction(
            eruca.Message(topic, "undone", sharding_key="k"), lambda _half: "rollback"
        )
        done = await producer.send_in_transaction(
            eruca.Message(topic, "done", sharding_key="k"), lambda _half: "commit"
        )

    [first] = await consumer.receive(wait_seconds=15)
    await consumer.nack(first, delay_seconds=0)
    [again] = await consumer.receive(wait_seconds=15)
    await consumer.ack(again)

    assert first.message.text() == again.message.text() == "done"
    assert (again.message.message_id, again.attempt) == (done.transaction_id, 2)
    assert await consumer.receive(wait_seconds=0) == []


async def test_a_committed_message_lies_where_the_receipt_says(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    async with client.transaction_producer(name) as producer:
        message = eruca.Message(topic, "x", sharding_key="k", properties={"p": "v"})
        async with producer.transaction(message) as transaction:
            half = transaction.half
            position = await client.admin.queues(topic)
            assert position[half.queue].max_offset == 0
        decision = transaction.result.decision
    assert decision is not None
    assert decision.message is not None
    [found] = await received(client, topic, 1)

    assert (found.message_id, found.queue) == (half.transaction_id, half.queue)
    assert (found.queue_offset, found.log_offset) == (0, decision.message.log_offset)
    assert (found.sharding_key, found.properties) == ("k", {"p": "v"})


async def test_a_delay_counts_from_the_commit(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    async with client.transaction_producer(name) as producer:
        async with producer.transaction(eruca.Message(topic, "x", delay_seconds=0.3)):
            await asyncio.sleep(0.2)  # the time that must not count
        [found] = await received(client, topic, 1)

    assert (found.stored_at - found.born_at).total_seconds() >= 0.45


async def test_an_id_of_the_programs_own_is_the_transactions(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    queue = eruca.MessageQueue(topic, "broker-a", 1)
    mine = f"order-of-{name}"
    async with client.transaction_producer(name) as producer:
        async with producer.transaction(
            eruca.Message(topic, "x", message_id=mine), queue=queue
        ) as transaction:
            other = producer.transaction(eruca.Message(topic, "y", message_id=mine), queue=queue)
            with pytest.raises(TransactionIdInUseError):
                async with other:
                    pytest.fail("it has begun")
        assert (transaction.transaction_id, transaction.half.queue) == (mine, queue)
        again = producer.transaction(eruca.Message(topic, "x", message_id=mine), queue=queue)
        with pytest.raises(eruca.AlreadyDecidedError):
            async with again:
                pytest.fail("it has begun once more")


async def test_what_cannot_be_committed_stays_undecided(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    async with client.transaction_producer(name) as producer:
        with pytest.raises(eruca.TopicNotFoundError):
            async with producer.transaction(eruca.Message(topic, "x")) as transaction:
                await client.admin.delete_topic(topic)
    detail = await client.admin.transactions.get(transaction.transaction_id)

    assert detail.state == "pending"


async def test_the_first_decision_counts(client: eruca.AsyncClient, topic: str, name: str) -> None:
    async with client.transaction_producer(name) as producer:
        async with producer.transaction(eruca.Message(topic, "x")) as transaction:
            await transaction.conclude("unknown")
        await client.admin.transactions.rollback(transaction.transaction_id, reason="by hand")
        with pytest.raises(eruca.AlreadyDecidedError) as caught:
            await transaction.commit()

    assert caught.value.decision["by"] == "operator"
    assert caught.value.decision["reason"] == "by hand"


# What operators see and do


async def begun(
    producer: eruca.AsyncTransactionProducer, message: eruca.Message, broker_name: str
) -> str:
    """Begin a transaction that nobody is to wait with asking about, and leave it."""
    queue = eruca.MessageQueue(message.topic, broker_name, 0)
    result = await producer.send_in_transaction(
        message, lambda _half: "unknown", queue=queue, check_immunity_seconds=0
    )
    return result.transaction_id


async def park(cluster: InProcessCluster, broker_name: str, transaction_id: str) -> None:
    """Give a transaction up, as the checker would."""
    url = f"{cluster.broker_urls[broker_name]}/v1/transactions/{transaction_id}:expire"
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(url, json={"checks": 0, "checker": "a-test"})
    answer.raise_for_status()


async def test_what_is_undecided_is_listed_over_all_brokers(
    cluster: InProcessCluster, client: eruca.AsyncClient, topic: str, name: str
) -> None:
    async with client.transaction_producer(name) as producer:
        ids = [
            await begun(producer, eruca.Message(topic, str(n)), f"broker-{'ab'[n % 2]}")
            for n in range(5)
        ]
    await park(cluster, "broker-a", ids[0])
    transactions = client.admin.transactions

    everything = [t async for t in transactions.undecided(producer_group=name)]
    parked = [t async for t in transactions.undecided(producer_group=name, state="parked")]
    at_b = [t async for t in transactions.undecided(producer_group=name, broker_name="broker-b")]

    assert {t.transaction_id: t.state for t in everything} == dict.fromkeys(ids, "pending") | {
        ids[0]: "parked"
    }
    begun_at = [t.begun_at for t in everything]
    assert begun_at == sorted(begun_at)
    assert [t.transaction_id for t in parked] == ids[:1]
    assert [t.transaction_id for t in at_b] == ids[1::2]
    assert {t.broker_name for t in at_b} == {"broker-b"}


async def test_a_parked_transaction_is_committed_or_discarded_for_a_reason(
    cluster: InProcessCluster, client: eruca.AsyncClient, topic: str, name: str
) -> None:
    async with client.transaction_producer(name) as producer:
        wanted = await begun(producer, eruca.Message(topic, "wanted"), "broker-a")
        unwanted = await begun(producer, eruca.Message(topic, "unwanted"), "broker-b")
    await park(cluster, "broker-a", wanted)
    await park(cluster, "broker-b", unwanted)
    transactions = client.admin.transactions

    committed = await transactions.commit(wanted, reason="the order exists")
    discarded = await transactions.rollback(unwanted, reason="it does not")
    again = await transactions.commit(wanted, reason="once more")
    detail = await transactions.get(wanted)

    assert (committed.state, committed.by, committed.reason) == (
        "committed",
        "operator",
        "the order exists",
    )
    assert (discarded.state, again.repeated) == ("rolled_back", True)
    assert [entry.event for entry in detail.history] == ["begun", "parked", "committed"]
    assert detail.history[-1].reason == "the order exists"
    assert [m.text() for m in await received(client, topic, 1)] == ["wanted"]
    with pytest.raises(eruca.AlreadyDecidedError):
        await transactions.commit(unwanted, reason="after all")
    with pytest.raises(eruca.TransactionNotFoundError):
        await transactions.get("no-such-transaction")


async def test_of_two_transactions_of_one_id_the_broker_must_be_named(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    mine = f"order-of-{name}"
    async with client.transaction_producer(name) as producer:
        for broker_name in ("broker-a", "broker-b"):
            await begun(producer, eruca.Message(topic, "x", message_id=mine), broker_name)
    transactions = client.admin.transactions

    with pytest.raises(eruca.ValidationError, match="broker-a and broker-b"):
        await transactions.rollback(mine, reason="which?")
    await transactions.rollback(mine, reason="this", broker_name="broker-a")

    assert (await transactions.get(mine, broker_name="broker-a")).state == "rolled_back"
    assert (await transactions.get(mine, broker_name="broker-b")).state == "pending"


# The same without async


async def test_transactions_without_async(
    cluster: InProcessCluster, client: eruca.AsyncClient, topic: str, name: str
) -> None:
    def run() -> None:
        with eruca.Client(cluster.namesrv_urls) as sync_client:
            threads = []

            def execute(half: eruca.HalfMessage) -> eruca.Verdict:
                threads.append(threading.current_thread())
                return "commit" if half.message.body == b"0" else "rollback"

            with sync_client.transaction_producer(name) as producer:
                for number in range(3):
                    result = producer.send_in_transaction(
                        eruca.Message(topic, str(number)), execute
                    )
                    assert result.is_decided
                with producer.transaction(eruca.Message(topic, "3")) as transaction:
                    assert transaction.half.queue.topic == topic
                assert transaction.result.is_decided
                with pytest.raises(ZeroDivisionError):
                    producer.send_in_transaction(
                        eruca.Message(topic, "4"),
                        lambda _half: 1 / 0,  # type: ignore[arg-type,return-value]
                        on_error="rollback",
                    )
            assert threads == [threading.current_thread()] * 3
            with pytest.raises(eruca.ClosedError):
                producer.transaction(eruca.Message(topic, "5"))

    await anyio.to_thread.run_sync(run)

    assert sorted(m.text() for m in await received(client, topic, 2)) == ["0", "3"]


async def test_a_block_that_ends_after_its_client_cannot_commit_in_silence(
    cluster: InProcessCluster, topic: str, name: str
) -> None:
    def run() -> None:
        sync_client = eruca.Client(cluster.namesrv_urls)
        producer = sync_client.transaction_producer(name)
        transaction = producer.transaction(eruca.Message(topic, "x"))
        with pytest.raises(eruca.ClosedError), transaction:
            sync_client.close()

    await anyio.to_thread.run_sync(run)
