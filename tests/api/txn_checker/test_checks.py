"""Transactions that nobody decides: producers are asked, and what they say is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from eruca_postgres.database import Database
from eruca_txn_checker.checking.due_work import CheckCounts
from eruca_txn_checker.checking.producers import Producers
from eruca_txn_checker.projection.producer_rows import reachable_groups
from support.brokers import rot
from support.checkers import Checked, begin, checked_by, create_topic, messages, take
from support.in_process_cluster import InProcessCluster, in_process_cluster
from support.patience import PATIENCE_SECONDS
from support.times import moment
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio


async def known_producers(database: Database) -> set[str]:
    """Return the groups whose producers are known to be there."""
    async with database.transaction() as connection:
        return await reachable_groups(connection, since_ms=0)


@pytest.fixture
async def patient(cluster: InProcessCluster, database_url: str) -> AsyncIterator[Checked]:
    """A checker whose second check comes much later than any test ends."""
    async with checked_by(cluster, database_url, interval_seconds=600) as checked:
        yield checked


async def test_an_undecided_transaction_is_asked_about_and_the_answer_commits_it(
    patient: Checked,
) -> None:
    transaction_id = await patient.begin()

    [check] = await patient.take("me")
    answer = await patient.answer(check["check_id"], "commit", client_id="me", reason="paid")

    assert check["transaction_id"] == transaction_id
    assert (check["number"], check["producer_group"], check["topic"]) == (1, "orders", "payments")
    assert check["message"]["body"] == {"text": "order 17"}
    assert moment(check["asked_at"]) < moment(check["answer_until"])
    assert answer.status_code == 200
    assert answer.json()["state"] == "committed"
    assert await messages(patient.broker) == ["order 17"]
    decision = (await patient.at_broker(transaction_id))["decision"]
    assert (decision["by"], decision["check_number"], decision["reason"]) == ("check", 1, "paid")
    seen = await patient.until_state(transaction_id, "committed")
    assert [sent["answer"] for sent in seen["checks_sent"]] == ["commit"]
    assert (seen["checks_sent"][0]["asked"], seen["checks_sent"][0]["answered_by"]) == ("me", "me")


async def test_an_answer_rolls_back_and_nobody_sees_the_message(checked: Checked) -> None:
    transaction_id = await checked.begin()

    [check] = await checked.take()
    answer = await checked.answer(check["check_id"], "rollback")

    assert answer.json()["decision"]["outcome"] == "rollback"
    assert (await checked.at_broker(transaction_id))["state"] == "rolled_back"
    assert await messages(checked.broker) == []


async def test_who_does_not_know_is_asked_again_after_the_interval(checked: Checked) -> None:
    await checked.begin()

    [first] = await checked.take()
    answer = await checked.answer(first["check_id"], "unknown")
    [second] = await checked.take()

    assert (answer.status_code, answer.json()["state"]) == (200, "pending")
    assert (first["number"], second["number"]) == (1, 2)
    assert first["check_id"] != second["check_id"]
    assert moment(second["asked_at"]) > moment(first["answer_until"])


async def test_a_check_that_nobody_answers_is_asked_of_another_producer(checked: Checked) -> None:
    transaction_id = await checked.begin()

    await checked.take("silent")
    [check] = await checked.take("other")
    await checked.answer(check["check_id"], "commit", client_id="other")

    seen = await checked.until_state(transaction_id, "committed")
    assert [(sent["asked"], sent["answer"]) for sent in seen["checks_sent"][:2]] == [
        ("silent", None),
        ("other", "commit"),
    ]


async def test_a_check_goes_to_one_of_those_who_wait_and_the_next_to_the_other(
    patient: Checked,
) -> None:
    first = asyncio.create_task(patient.take("first"))
    await until(lambda: patient.app.parts[Producers].waiting_count == 1)
    second = asyncio.create_task(patient.take("second"))
    await until(lambda: patient.app.parts[Producers].waiting_count == 2)

    one = await patient.begin()
    [check_of_one] = await first
    assert not second.done()
    other = await patient.begin()
    [check_of_other] = await second

    assert [check_of_one["transaction_id"], check_of_other["transaction_id"]] == [one, other]


async def test_many_checks_are_shared_by_those_who_wait(patient: Checked) -> None:
    waiting = [asyncio.create_task(patient.take(name, count_max=32)) for name in ("a", "b")]
    await until(lambda: patient.app.parts[Producers].waiting_count == 2)

    begun = {await patient.begin() for _ in range(6)}
    taken = [check["transaction_id"] for task in waiting for check in await task]
    while len(taken) < len(begun):
        taken += [check["transaction_id"] for check in await patient.take(count_max=32)]

    assert sorted(taken) == sorted(begun)


async def test_no_more_checks_are_taken_than_asked_for(patient: Checked) -> None:
    for _ in range(3):
        await patient.begin()

    taken = [await patient.take(count_max=1) for _ in range(3)]

    assert [len(checks) for checks in taken] == [1, 1, 1]
    assert await patient.take(wait_seconds=0) == []


async def test_large_messages_come_in_several_answers(patient: Checked) -> None:
    large = {"body": {"text": "x" * 3_000_000}}
    begun = {await patient.begin(message=large) for _ in range(5)}
    for transaction_id in begun:
        await patient.seen(transaction_id, lambda shown: shown["checks_sent"])

    taken = [await patient.take(count_max=32, wait_seconds=0) for _ in range(4)]

    assert [len(checks) for checks in taken] == [2, 2, 1, 0]
    assert {check["transaction_id"] for checks in taken for check in checks} == begun


async def test_a_message_may_ask_to_be_let_alone_for_longer(checked: Checked) -> None:
    immune = await checked.begin(check_immunity_seconds=600)
    other = await checked.begin()

    [check] = await checked.take()

    assert check["transaction_id"] == other
    seen = await checked.seen(immune)
    assert seen["checks"] == 0
    assert seen["check_immunity_seconds"] == 600
    assert moment(seen["next_check_at"]) > moment(seen["begun_at"])


async def test_what_is_decided_in_time_is_not_asked_about(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with checked_by(cluster, database_url, timeout_seconds=0.4) as checked:
        decided = await checked.begin()
        await checked.broker.post(
            f"/v1/transactions/{decided}:commit", json={"producer_group": "orders"}
        )
        other = await checked.begin()

        [check] = await checked.take()

        assert check["transaction_id"] == other
        assert (await checked.seen(decided))["checks_sent"] == []


async def test_a_check_is_spared_whose_transaction_was_decided_while_it_waited(
    patient: Checked,
) -> None:
    transaction_id = await patient.begin()
    await patient.seen(transaction_id, lambda shown: shown["checks_sent"])

    await patient.broker.post(
        f"/v1/transactions/{transaction_id}:rollback", json={"producer_group": "orders"}
    )

    assert await patient.take(wait_seconds=0) == []


async def test_the_first_decision_wins_and_the_opposite_is_told_of_it(checked: Checked) -> None:
    transaction_id = await checked.begin()
    [check] = await checked.take()
    await checked.broker.post(
        f"/v1/transactions/{transaction_id}:commit", json={"producer_group": "orders"}
    )

    refused = await checked.answer(check["check_id"], "rollback")
    same = await checked.answer(check["check_id"], "commit")

    assert refused.status_code == 409
    assert refused.json()["code"] == "already-decided"
    assert refused.json()["decision"]["by"] == "producer"
    assert (same.status_code, same.json()["repeated"]) == (200, True)
    assert await messages(checked.broker) == ["order 17"]


async def test_an_answer_may_be_given_again_and_not_be_changed(checked: Checked) -> None:
    await checked.begin()
    [check] = await checked.take()

    first = await checked.answer(check["check_id"], "rollback")
    again = await checked.answer(check["check_id"], "rollback")
    opposite = await checked.answer(check["check_id"], "commit")
    unsure = await checked.answer(check["check_id"], "unknown")

    assert [answer.status_code for answer in (first, again, opposite)] == [200, 200, 409]
    assert (first.json()["repeated"], again.json()["repeated"]) == (False, True)
    assert unsure.status_code == 200
    assert await messages(checked.broker) == []


async def test_an_answer_counts_also_after_the_next_check_was_sent(checked: Checked) -> None:
    transaction_id = await checked.begin()
    [slow] = await checked.take("slow")
    await checked.take("quick")

    answer = await checked.answer(slow["check_id"], "commit")

    assert answer.json()["state"] == "committed"
    assert (await checked.at_broker(transaction_id))["decision"]["check_number"] == 1


async def test_a_check_that_never_was_is_not_found(checked: Checked) -> None:
    answer = await checked.answer("5e7be3a5", "commit")

    assert (answer.status_code, answer.json()["code"]) == (404, "check-not-found")


async def test_after_its_checks_a_transaction_is_parked_and_an_operator_may_commit_it(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with checked_by(cluster, database_url, checks_max=2, interval_seconds=0.05) as checked:
        transaction_id = await checked.begin()

        parked = await checked.until_state(transaction_id, "parked")
        assert parked["checks"] == 2
        assert parked["decision"]["by"] == "limit"
        assert [sent["asked"] for sent in parked["checks_sent"]] == [None, None]
        assert await messages(checked.broker) == []

        committed = await checked.http.post(
            f"/v1/transactions/{transaction_id}:commit", json={"reason": "see ticket 4711"}
        )

        assert committed.json()["by"] == "operator"
        assert await messages(checked.broker) == ["order 17"]
        seen = await checked.until_state(transaction_id, "committed")
        assert seen["decision"]["reason"] == "see ticket 4711"


async def test_a_producer_with_more_checks_than_it_can_take_uses_none_of_them_up(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with checked_by(cluster, database_url, checks_max=1, interval_seconds=0.3) as checked:
        parts = checked.app.parts
        await checked.take(wait_seconds=0)
        await until_told(lambda: known_producers(parts[Database]), bool)
        transaction_id = await checked.begin()
        await until(lambda: parts[CheckCounts].put_off >= 2)

        [check] = await checked.take()
        await checked.answer(check["check_id"], "commit")

        seen = await checked.until_state(transaction_id, "committed")
        assert (check["number"], seen["checks"]) == (1, 1)


async def test_where_checks_need_a_producer_none_is_used_up_without_one(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with checked_by(
        cluster, database_url, checks_max=1, interval_seconds=2, counts_unreachable=False
    ) as checked:
        lonely = await checked.begin(producer_group="nobody")
        await checked.begin()

        [check] = await checked.take()
        await checked.answer(check["check_id"], "commit")
        seen = await checked.seen(lonely)

        assert (seen["state"], seen["checks"]) == ("pending", 0)


async def test_what_is_too_old_is_given_up_even_if_nobody_can_be_asked(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with checked_by(
        cluster, database_url, counts_unreachable=False, age_seconds_max=1
    ) as checked:
        lonely = await checked.begin()

        parked = await checked.until_state(lonely, "parked")

        assert parked["checks"] == 0


async def test_checks_of_a_producer_that_leaves_before_it_is_told_go_to_another(
    patient: Checked,
) -> None:
    leaving = asyncio.create_task(patient.take("leaving"))
    producers = patient.app.parts[Producers]
    await until(lambda: producers.waiting_count == 1)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await until(lambda: producers.waiting_count == 0)

    await patient.begin()
    [check] = await patient.take("staying")

    assert check["number"] == 1


async def test_a_broker_that_is_away_holds_up_no_checks_of_others(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        in_process_cluster(tmp_path, brokers=2) as cluster,
        checked_by(cluster, database_url, interval_seconds=600) as checked,
    ):
        away = await checked.begin()
        await checked.seen(away, lambda shown: shown["checks_sent"])
        await cluster.stop_broker("broker-a")
        there = await begin(checked.brokers["broker-b"])

        [check] = await checked.take(count_max=1, wait_seconds=15)

        assert check["transaction_id"] == there


async def test_as_many_requests_are_held_as_may_be(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with checked_by(cluster, database_url, held_requests_max=1) as checked:
        waiting = asyncio.create_task(checked.take("first"))
        await until(lambda: checked.app.parts[Producers].waiting_count == 1)

        refused = await checked.http.post(
            "/v1/producer-groups/orders/checks", params={"wait_seconds": 5}
        )

        assert refused.status_code == 429
        assert "held_requests_max" in refused.json()["detail"]
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_who_waits_is_let_go_when_the_service_stops(checked: Checked) -> None:
    waiting = asyncio.create_task(checked.take(wait_seconds=30))
    await until(lambda: checked.app.parts[Producers].waiting_count == 1)

    checked.app.begin_stop()

    assert await asyncio.wait_for(waiting, PATIENCE_SECONDS) == []


async def test_a_deleted_topic_leaves_a_transaction_pending_and_says_why(
    checked: Checked,
) -> None:
    transaction_id = await checked.begin()
    [check] = await checked.take()
    await checked.broker.delete("/v1/topics/payments")

    refused = await checked.answer(check["check_id"], "commit")
    rolled_back = await checked.answer(check["check_id"], "rollback")

    assert (refused.status_code, refused.json()["code"]) == (404, "topic-not-found")
    assert rolled_back.json()["state"] == "rolled_back"
    assert "deleted" in (await checked.seen(transaction_id))["checks_sent"][0]["fault"]


async def test_an_answer_that_the_broker_has_no_room_for_holds_up_nothing_else(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        in_process_cluster(tmp_path, brokers=1, timers_max=1) as cluster,
        checked_by(cluster, database_url) as checked,
    ):
        late = {"body": {"text": "later"}, "delay_seconds": 600}
        await checked.begin(message=late)
        [check] = await checked.take()
        await checked.broker.post("/v1/topics/payments/messages", json={"messages": [late]})

        refused = await checked.answer(check["check_id"], "commit")
        await checked.begin(producer_group="others")
        numbers = [(await take(checked.http, group="others"))[0]["number"] for _ in range(5)]

    assert refused.status_code == httpx.codes.SERVICE_UNAVAILABLE
    assert "the answer is stored" in refused.json()["detail"]
    assert numbers == [1, 2, 3, 4, 5]  # longer than until a kept answer is sent again


@pytest.mark.parametrize(
    "query", [{"count_max": 0}, {"count_max": 33}, {"wait_seconds": 31}, {"client_id": "a b"}]
)
async def test_a_request_beyond_the_limits_is_refused(
    checked: Checked, query: dict[str, str]
) -> None:
    refused = await checked.http.post("/v1/producer-groups/orders/checks", params=query)

    assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY


def rot_event(cluster: InProcessCluster, transaction_id: str, field: str) -> None:
    """Change one bit of the event that tells a transaction's *field* next to its id."""
    event = f'"transaction_id":"{transaction_id}","{field}"'.encode()
    rot(cluster.brokers["broker-a"], event)


@pytest.mark.parametrize("field", ["outcome", "number", "producer_group"])
async def test_an_event_that_has_rotted_keeps_no_transaction_from_being_asked_about(
    cluster: InProcessCluster, database_url: str, field: str
) -> None:
    async with httpx.AsyncClient(base_url=cluster.broker_urls["broker-a"]) as broker:
        await create_topic(broker)
        decided, pending = await begin(broker), await begin(broker)
        told = {"by": "producer", "producer_group": "orders"}
        answer = await broker.post(f"/v1/transactions/{decided}:rollback", json=told)
        assert answer.status_code == 200, answer.text
        check = {"number": 1, "checker": "another"}
        answer = await broker.post(f"/v1/transactions/{pending}:check", json=check)
        assert answer.status_code == 200, answer.text
    rot_event(cluster, decided if field == "outcome" else pending, field)

    async with checked_by(cluster, database_url) as checked:
        [first, second] = [(await checked.take())[0] for _ in range(2)]
        answer = await checked.answer(second["check_id"], "commit")
        metrics = (await checked.http.get("/metrics")).text
        seen = await checked.until_state(pending, "committed")

    assert [its["transaction_id"] for its in (first, second)] == [pending, pending]
    assert [its["number"] for its in (first, second)] in ([1, 2], [2, 3])
    assert answer.json()["state"] == "committed"
    assert seen["checks"] == second["number"]
    assert "eruca_txn_checker_unreadable_total 1.0" in metrics
