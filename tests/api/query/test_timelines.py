"""A message's life over HTTP: every turn it can take, and where groups stand with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

import eruca
from eruca_query.searching.life_sql import EVENTS_MAX
from support.delivery_clients import DeliveryClient
from support.in_process_cluster import InProcessCluster, in_process_cluster
from support.members import HoldingMember, joined
from support.query_services import Queried, queried_by
from support.times import moment
from support.waiting import until_told

pytestmark = pytest.mark.anyio
GROUP = "billing"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    async with in_process_cluster(tmp_path, brokers=1) as cluster:
        yield cluster


@pytest.fixture(params=["in the rows", "in the log's tail"])
async def queried(
    request: pytest.FixtureRequest, cluster: InProcessCluster, database_url: str
) -> AsyncIterator[Queried]:
    """All of it must be shown alike, whether the read model has come as far or not."""
    async with queried_by(cluster, database_url) as queried:
        if request.param == "in the log's tail":
            await queried.stop_following()
        yield queried


@pytest.fixture
async def broker(cluster: InProcessCluster) -> AsyncIterator[httpx.AsyncClient]:
    url = cluster.broker_urls["broker-a"]
    async with httpx.AsyncClient(base_url=f"{url}/v1", trust_env=False) as broker:
        yield broker


async def send(broker: httpx.AsyncClient, **fields: Any) -> str:  # noqa: ANN401
    await broker.put("/topics/orders", json={"read_queue_count": 1, "write_queue_count": 1})
    answer = await broker.post("/topics/orders/messages", json={"body": {"text": "17"}, **fields})
    assert answer.status_code == 201, answer.text
    message_id: str = answer.json()["message_id"]
    return message_id


async def timeline(queried: Queried, message_id: str) -> dict[str, Any]:
    await queried.caught_up()
    return await queried.get(f"/v1/messages/{message_id}/timeline")


def kinds(told: dict[str, Any]) -> list[str]:
    return [event["kind"] for event in told["events"]]


def group_of(told: dict[str, Any], name: str = GROUP) -> dict[str, Any]:
    [group] = [group for group in told["groups"] if group["group"] == name]
    found: dict[str, Any] = group
    return found


def time_of(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_a_message_nobody_has_touched_was_stored_and_that_is_all(
    queried: Queried, broker: httpx.AsyncClient
) -> None:
    message_id = await send(broker)

    told = await timeline(queried, message_id)

    [event] = told["events"]
    [place] = told["places"]
    assert (event["kind"], event["topic"], event["queue_offset"]) == ("stored", "orders", 0)
    assert place["message_id"] == told["message_id"] == message_id
    assert event["at"] == place["stored_at"]
    assert told["groups"] == told["incomplete"] == []


async def test_a_message_that_failed_again_and_again_tells_each_time_why(
    queried: Queried, broker: httpx.AsyncClient
) -> None:
    message_id = await send(broker)
    await broker.put(f"/groups/{GROUP}", json={"retries_max": 1, "start": "earliest"})
    member = await joined(broker, GROUP, "orders")
    await member.lock("orders", 0)
    place = {"topic": "orders", "queue_id": 0, "queue_offset": 0}
    await sent_back(member, place | {"delay_seconds": 0, "error": "ValueError: first"})
    retry = {"topic": f"%RETRY%{GROUP}", "queue_id": 0, "queue_offset": 0}
    pulled = await broker.get(
        f"/topics/%25RETRY%25{GROUP}/queues/0/messages", params={"offset": 0, "wait_seconds": 10}
    )
    assert pulled.json()["messages"], pulled.text
    await member.lock(retry["topic"], 0)  # type: ignore[arg-type]
    await sent_back(member, retry | {"reason": "timed_out", "error": "TimeoutError: second"})
    redriven = await broker.post(f"/groups/{GROUP}/dead-letters:redrive", json={"ids": [0]})
    assert redriven.status_code == 200, redriven.text

    told = await timeline(queried, message_id)

    assert kinds(told) == [
        "stored",
        "sent_back",
        "retry",
        "dead_letter",
        "redriven",
        "stored",
    ]
    _, sent, again, dead, redrive, _ = told["events"]
    assert (sent["detail"]["group"], sent["detail"]["attempt"]) == (GROUP, 1)
    assert (sent["detail"]["reason"], sent["detail"]["error"]) == ("failed", "ValueError: first")
    assert moment(sent["detail"]["deliver_at"]) <= moment(again["at"])
    assert again["topic"] == f"%RETRY%{GROUP}"
    assert (dead["detail"]["reason"], dead["detail"]["error"]) == (
        "timed_out",
        "TimeoutError: second",
    )
    assert redrive["detail"] == {"group": GROUP}
    assert [event["at"] for event in told["events"]] == sorted(e["at"] for e in told["events"])
    assert len(told["places"]) == 5


async def sent_back(member: HoldingMember, message: dict[str, Any]) -> None:
    answer = await member.send_back(message)
    assert answer.status_code == 200, answer.text


async def test_a_transaction_tells_of_its_half_message_its_checks_and_its_decision(
    queried: Queried, broker: httpx.AsyncClient
) -> None:
    await broker.put("/topics/orders", json={"read_queue_count": 1, "write_queue_count": 1})
    begun = await broker.post(
        "/transactions",
        json={
            "topic": "orders",
            "producer_group": "checkout",
            "message": {"body": {"text": "17"}},
            "check_immunity_seconds": 0,
        },
    )
    assert begun.status_code == 201, begun.text
    message_id = begun.json()["transaction_id"]
    half = await timeline(queried, message_id)
    checked = await broker.post(
        f"/transactions/{message_id}:check", json={"number": 1, "checker": "test"}
    )
    assert checked.status_code == 200, checked.text
    decided = await broker.post(
        f"/transactions/{message_id}:commit",
        json={"producer_group": "checkout", "by": "check", "check_number": 1, "reason": "paid"},
    )
    assert decided.status_code == 200, decided.text

    told = await timeline(queried, message_id)

    assert kinds(half) == ["half"]
    assert half["events"][0]["detail"]["producer_group"] == "checkout"
    assert kinds(told) == ["half", "checked", "decided", "stored"]
    assert told["events"][1]["detail"] == {"number": 1, "checker": "test"}
    assert told["events"][2]["detail"]["outcome"] == "commit"
    assert told["events"][2]["detail"]["reason"] == "paid"
    found = await queried.get(f"/v1/messages/{message_id}")
    assert found["message"]["topic"] == "orders"
    assert [its["topic"] for its in found["also_stored"]] == ["RMQ_SYS_TRANS_HALF_TOPIC"]


async def test_a_delayed_message_is_recalled_or_delivered(
    queried: Queried, broker: httpx.AsyncClient
) -> None:
    recalled = await send(broker, delay_seconds=600)
    [waiting] = (await broker.get("/scheduled")).json()["scheduled"]
    delivered = await send(broker, delay_seconds=0.2)
    answer = await broker.delete(f"/scheduled/{waiting['recall_handle']}")
    assert answer.status_code == 204, answer.text
    pulled = await broker.get(
        "/topics/orders/queues/0/messages", params={"offset": 0, "wait_seconds": 10}
    )
    assert [message["message_id"] for message in pulled.json()["messages"]] == [delivered]

    assert kinds(await timeline(queried, recalled)) == ["delayed", "recalled"]
    told = await timeline(queried, delivered)

    assert kinds(told) == ["delayed", "stored"]
    assert moment(told["events"][0]["detail"]["deliver_at"]) <= moment(told["events"][1]["at"])


async def test_of_an_id_that_all_messages_have_the_first_events_are_told_and_that_there_are_more(
    queried: Queried,
) -> None:
    message = eruca.Message("orders", "17", message_id="same-id", delay_seconds=600)
    async with queried.client.producer() as producer:
        await producer.send_many([message] * EVENTS_MAX)
        told = await timeline(queried, "same-id")
        await producer.send(message)
    more = await timeline(queried, "same-id")

    assert more["events"] == told["events"]
    [places] = told["incomplete"]
    assert more["incomplete"] == [
        places,
        places | {"detail": "it has more than 1000 events; the first ones are shown"},
    ]


async def test_a_message_handed_out_by_itself_tells_how_often_and_that_it_is_done(
    queried: Queried, broker: httpx.AsyncClient
) -> None:
    consumer = DeliveryClient(broker)
    await consumer.create()
    message_id = await send(broker)
    await consumer.nack(*await consumer.receive(wait_seconds=5), delay_seconds=0)
    again = await consumer.receive(wait_seconds=5)
    leased = await timeline(queried, message_id)
    until = again[0]["visible_at"]
    assert (await consumer.ack(*again)).is_success

    told = await timeline(queried, message_id)

    assert kinds(leased) == ["stored", "leased", "nacked", "leased"]
    assert group_of(leased)["state"] == "in_delivery"
    assert group_of(leased)["detail"] == f"leased until {until}"
    assert kinds(told) == ["stored", "leased", "nacked", "leased", "acked"]
    assert [e["detail"].get("attempt") for e in told["events"]] == [None, 1, None, 2, None]
    assert group_of(told)["state"] == "done"
    assert group_of(told)["since"] == told["events"][-1]["at"]


async def test_a_message_whose_delivery_is_over_is_not_in_delivery(
    queried: Queried, broker: httpx.AsyncClient
) -> None:
    consumer = DeliveryClient(broker)
    await consumer.create()
    message_id = await send(broker)
    [delivery] = await consumer.receive(wait_seconds=5, invisible_seconds=1)
    await queried.caught_up()

    told = await until_told(
        lambda: timeline(queried, message_id),
        lambda told: group_of(told)["state"] != "in_delivery",
    )

    group = group_of(told)
    assert group["state"] == "not_yet"
    assert time_of(group["since"]) == time_of(delivery["visible_at"])
    assert group["detail"].startswith(f"its lease expired at {delivery['visible_at']};")


async def test_a_message_that_a_group_has_given_up_on_is_a_dead_letter(
    queried: Queried, broker: httpx.AsyncClient
) -> None:
    consumer = DeliveryClient(broker)
    await consumer.create(retries_max=0)
    message_id = await send(broker)
    assert (await consumer.nack(*await consumer.receive(wait_seconds=5))).is_success

    group = group_of(await timeline(queried, message_id))

    assert group["state"] == "done"
    assert group["detail"] == "its retries are exhausted: it is a dead letter"


async def test_a_last_delivery_that_nobody_acknowledges_is_told_to_be_over(
    queried: Queried, broker: httpx.AsyncClient
) -> None:
    consumer = DeliveryClient(broker)
    await consumer.create(retries_max=0)
    message_id = await send(broker)
    assert await consumer.receive(wait_seconds=5, invisible_seconds=1)

    async def asked_again() -> dict[str, Any]:
        assert await consumer.receive() == []
        return await timeline(queried, message_id)

    told = await until_told(asked_again, lambda told: group_of(told)["state"] == "done")

    assert kinds(told) == ["stored", "leased", "lease_expired", "dead_letter"]
    assert group_of(told)["since"] == told["events"][2]["at"]
    assert group_of(told)["detail"].startswith("its last delivery was not acknowledged in time")


async def test_groups_stand_before_a_message_behind_it_or_nowhere(
    queried: Queried, broker: httpx.AsyncClient
) -> None:
    await send(broker, tag="a")
    message_id = await send(broker, tag="a")
    for group, filters in (("past", "*"), ("before", "*"), ("other", "b"), ("new", "*")):
        await broker.put(f"/groups/{group}", json={"start": "latest"})
        put = await broker.put(
            f"/groups/{group}/members/me",
            json={
                "incarnation": "first",
                "subscriptions": [{"topic": "orders", "filter": filters}],
            },
        )
        assert put.status_code == 201, put.text
    for group, offset in (("past", 2), ("before", 1), ("other", 2)):
        commit = {"topic": "orders", "queue_id": 0, "offset": offset}
        put = await broker.put(f"/groups/{group}/offsets", json={"offsets": [commit]})
        assert put.status_code == 204, put.text

    told = await timeline(queried, message_id)

    states = {group["group"]: group["state"] for group in told["groups"]}
    assert states == {"past": "past", "before": "not_yet", "other": "filtered", "new": "past"}
    assert group_of(told, "past")["next_offset"] == 2
    assert moment(group_of(told, "past")["since"]) >= moment(told["places"][0]["stored_at"])


async def test_groups_that_only_the_rows_tell_of_stand_before_what_only_the_log_has(
    cluster: InProcessCluster, database_url: str, broker: httpx.AsyncClient
) -> None:
    async def commit(group: str, offset: int) -> None:
        its = {"topic": "orders", "queue_id": 0, "offset": offset}
        put = await broker.put(f"/groups/{group}/offsets", json={"offsets": [its]})
        assert put.status_code == 204, put.text

    async with queried_by(cluster, database_url) as queried:
        await send(broker, tag="a")
        for group, filters in (("before", "*"), ("other", "b"), ("gone", "*")):
            member = f"/groups/{group}/members/me"
            its = [{"topic": "orders", "filter": filters}]
            await broker.put(f"/groups/{group}", json={"start": "earliest"})
            put = await broker.put(member, json={"incarnation": "first", "subscriptions": its})
            assert put.status_code == 201, put.text
            await commit(group, 1)
        await queried.caught_up()
        await queried.stop_following()
        message_id = await send(broker, tag="a")
        await commit("other", 2)
        left = await broker.delete("/groups/gone/members/me", params={"incarnation": "first"})
        assert left.is_success, left.text
        assert (await broker.delete("/groups/gone")).is_success

        told = await timeline(queried, message_id)

    states = {group["group"]: group["state"] for group in told["groups"]}
    assert states == {"before": "not_yet", "other": "filtered"}


async def test_since_when_a_group_is_past_a_message_counts_from_its_last_reset(
    queried: Queried, broker: httpx.AsyncClient
) -> None:
    await broker.put(f"/groups/{GROUP}", json={"start": "earliest"})
    message_id = await send(broker)

    async def commit(offset: int) -> dict[str, Any]:
        its = {"topic": "orders", "queue_id": 0, "offset": offset}
        answer = await broker.put(f"/groups/{GROUP}/offsets", json={"offsets": [its]})
        assert answer.status_code == 204, answer.text
        return group_of(await timeline(queried, message_id))

    first = await commit(1)
    back = await commit(0)
    again = await commit(1)

    assert [its["state"] for its in (first, back, again)] == ["past", "not_yet", "past"]
    assert back["since"] is None
    assert moment(again["since"]) > moment(first["since"])


async def test_a_group_that_went_back_and_stayed_behind_a_message_is_past_it_since_before(
    queried: Queried, broker: httpx.AsyncClient
) -> None:
    await broker.put(f"/groups/{GROUP}", json={"start": "earliest"})
    message_id = await send(broker)
    for _ in range(3):
        await send(broker)

    async def commit(offset: int) -> dict[str, Any]:
        its = {"topic": "orders", "queue_id": 0, "offset": offset}
        answer = await broker.put(f"/groups/{GROUP}/offsets", json={"offsets": [its]})
        assert answer.status_code == 204, answer.text
        await queried.caught_up()
        return group_of(await timeline(queried, message_id))

    first = await commit(4)
    back = await commit(2)

    assert (first["next_offset"], back["next_offset"]) == (4, 2)
    assert back["since"] == first["since"]


async def test_what_a_broker_records_of_itself_is_a_message_to_which_nothing_happens(
    queried: Queried, broker: httpx.AsyncClient
) -> None:
    message_id = await send(broker)
    place = (await timeline(queried, message_id))["places"][0]
    own_id = place["offset_message_id"][:-16] + "0" * 16  # the log begins with such a record
    found = await queried.get(f"/v1/messages/{own_id}")

    told = await timeline(queried, own_id)

    assert found["message"]["topic"] == "ERUCA_SYS_EVENTS"
    assert [its["log_offset"] for its in told["places"]] == [0]
    assert told["events"] == told["groups"] == []


async def test_of_an_id_that_nobody_has_nothing_can_be_told(queried: Queried) -> None:
    answer = await queried.http.get("/v1/messages/no-such-id/timeline")

    assert answer.status_code == 404
    assert answer.json()["code"] == "message-not-found"


async def test_a_topic_that_is_created_again_has_messages_of_their_own_in_the_old_ones_places(
    queried: Queried, broker: httpx.AsyncClient
) -> None:
    consumer = DeliveryClient(broker)
    await consumer.create()
    old = await send(broker)
    assert (await consumer.ack(*await consumer.receive(wait_seconds=5))).is_success
    assert (await broker.delete("/topics/orders")).is_success
    new = await send(broker)
    assert await consumer.receive(wait_seconds=5)

    of_old, of_new = await timeline(queried, old), await timeline(queried, new)

    assert of_old["places"][0]["queue_offset"] == of_new["places"][0]["queue_offset"] == 0
    assert kinds(of_new) == ["stored", "leased"]
    assert group_of(of_new)["state"] == "in_delivery"
    assert kinds(of_old) == ["stored", "leased", "acked"]
    assert of_old["groups"] == []


async def test_a_reset_ends_deliveries_and_what_they_said_of_a_message(
    queried: Queried, broker: httpx.AsyncClient
) -> None:
    consumer = DeliveryClient(broker)
    await consumer.create()
    done, held = await send(broker), await send(broker)
    deliveries = await consumer.receive(wait_seconds=5)
    assert (await consumer.ack(deliveries[0])).is_success

    async def stand(offset: int) -> list[str]:
        its = {"topic": "orders", "queue_id": 0, "offset": offset}
        put = await broker.put(f"/groups/{GROUP}/offsets", json={"offsets": [its]})
        assert put.status_code == 204, put.text
        return [group_of(await timeline(queried, its))["state"] for its in (done, held)]

    before = [group_of(await timeline(queried, its))["state"] for its in (done, held)]

    assert before == ["done", "in_delivery"]
    assert await stand(2) == ["past", "past"]
    assert await stand(0) == ["not_yet", "not_yet"]
    assert len(await consumer.receive(wait_seconds=5)) == 2
    assert group_of(await timeline(queried, done))["state"] == "in_delivery"


async def test_a_group_that_is_created_again_has_not_done_what_the_deleted_one_had(
    queried: Queried, broker: httpx.AsyncClient
) -> None:
    consumer = DeliveryClient(broker)
    await consumer.create()
    message_id = await send(broker)
    assert (await consumer.ack(*await consumer.receive(wait_seconds=5))).is_success
    done = await timeline(queried, message_id)
    assert (await broker.delete(f"/groups/{GROUP}")).is_success
    deleted = await timeline(queried, message_id)
    await broker.put(f"/groups/{GROUP}", json={"start": "latest"})
    assert await consumer.receive() == []

    again = await timeline(queried, message_id)

    assert group_of(done)["state"] == "done"
    assert deleted["groups"] == []
    assert group_of(again)["state"] == "past"
    assert kinds(again) == ["stored", "leased", "acked"]
