"""Administration against real services: what is done is done everywhere, and seen at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import eruca
from eruca.contract.errors import (
    BrokerNotFoundError,
    KeyNotFoundError,
    RecordNotFoundError,
    SystemTopicError,
)
from eruca.contract.topics import OrderConfig
from support.in_process_cluster import InProcessCluster

pytestmark = pytest.mark.anyio


async def test_a_topic_is_created_on_every_broker_and_in_the_route_at_once(
    client: eruca.AsyncClient, name: str
) -> None:
    configs = await client.admin.create_topic(name, queue_count=3, ordered=True)

    assert {(c.read_queue_count, c.write_queue_count, c.ordered) for c in configs.values()} == {
        (3, 3, True)
    }
    route = await client.admin.route(name)
    assert [data.broker_name for data in route.queues] == ["broker-a", "broker-b"]
    assert await client.admin.topic(name) == configs
    assert name in await client.admin.list_topics()


async def test_the_brokers_of_an_ordered_topic_agree_on_its_queues(
    client: eruca.AsyncClient, name: str
) -> None:
    async def order_configs() -> dict[str, OrderConfig | None]:
        held = await client.admin.topic(name)
        return {broker_name: its.order_config for broker_name, its in held.items()}

    def order(version: int, **queues: int) -> OrderConfig:
        return OrderConfig(version=version, queues={f"broker-{n}": q for n, q in queues.items()})

    await client.admin.create_topic(name, queue_count=2, ordered=True, broker_name="broker-a")
    assert await order_configs() == {"broker-a": order(1, a=2)}
    await client.admin.create_topic(name, queue_count=3, ordered=True, broker_name="broker-b")
    both = order(2, a=2, b=3)
    assert await order_configs() == {"broker-a": both, "broker-b": both}
    assert (await client.admin.route(name)).order_config == "broker-a:2;broker-b:3"
    await client.admin.create_topic(name, queue_count=3, ordered=True, broker_name="broker-b")
    assert await order_configs() == {"broker-a": both, "broker-b": both}
    await client.admin.delete_topic(name, broker_name="broker-a")
    assert await order_configs() == {"broker-b": order(3, b=3)}
    await client.admin.create_topic(name, ordered=False)
    assert await order_configs() == {"broker-a": None, "broker-b": None}


async def test_a_broker_that_is_there_cannot_be_given_up(
    client: eruca.AsyncClient, topic: str
) -> None:
    with pytest.raises(eruca.ValidationError, match="broker-b is live"):
        await client.admin.change_topic(topic, {}, without=["broker-b"])
    with pytest.raises(eruca.ValidationError, match="are assigned to broker-z"):
        await client.admin.change_topic(topic, {}, without=["broker-z"])


async def test_a_topic_can_be_on_one_broker_only(client: eruca.AsyncClient, name: str) -> None:
    configs = await client.admin.create_topic(
        name, read_queue_count=4, write_queue_count=2, broker_name="broker-b"
    )

    assert set(configs) == set(await client.admin.topic(name)) == {"broker-b"}
    assert (configs["broker-b"].read_queue_count, configs["broker-b"].write_queue_count) == (4, 2)
    assert name in [t.topic for t in await client.admin.topics_of_broker("broker-b")]
    assert name not in [t.topic for t in await client.admin.topics_of_broker("broker-a")]


async def test_creating_a_topic_again_changes_its_settings(
    client: eruca.AsyncClient, topic: str
) -> None:
    await client.admin.create_topic(topic, queue_count=5)

    assert len(await client.admin.queues(topic)) == 10


async def test_a_queue_that_was_taken_away_by_force_counts_as_lag(
    client: eruca.AsyncClient, name: str
) -> None:
    await client.admin.create_topic(name, queue_count=2, broker_name="broker-a")
    queues = [eruca.MessageQueue(name, "broker-a", number) for number in range(2)]
    async with client.producer() as producer:
        for queue in queues:
            await producer.send(eruca.Message(name, "x"), queue=queue)
    await client.admin.groups.create(name)
    await client.admin.groups.commit(name, dict.fromkeys(queues, 0))
    assert (await client.admin.groups.lag(name)).lag == 2

    await client.admin.create_topic(name, queue_count=1, force=True, broker_name="broker-a")

    behind = await client.admin.groups.lag(name)
    assert [behind.queues[queue].lag for queue in queues] == [1, 1]
    assert behind.lag == 2


async def test_how_far_a_group_is_behind_that_has_never_read_is_unknown(
    client: eruca.AsyncClient, name: str
) -> None:
    await client.admin.groups.create(name)

    assert (await client.admin.groups.lag(name)).lag is None


async def test_the_lags_of_all_groups_are_the_totals_over_all_brokers(
    client: eruca.AsyncClient, topic: str
) -> None:
    behind, idle = f"behind-{topic}", f"idle-{topic}"
    for group in (behind, idle):
        await client.admin.groups.create(group, start="earliest")
    receipts = [await client.producer().send(eruca.Message(topic, b"x")) for _ in range(5)]
    queues = await client.admin.queues(topic)
    await client.admin.groups.commit(
        behind, {queue: ends.min_offset for queue, ends in queues.items()}
    )

    lags = await client.admin.groups.lags()

    whole = await client.admin.groups.lag(behind)
    assert whole.lag == len(receipts)
    assert lags[behind] == eruca.TotalLag(whole.lag, whole.oldest_unconsumed_at)
    assert lags[idle] == eruca.TotalLag(None, None)


async def test_a_topic_is_deleted_on_every_broker(client: eruca.AsyncClient, topic: str) -> None:
    assert await client.admin.delete_topic(topic) == ["broker-a", "broker-b"]
    with pytest.raises(eruca.TopicNotFoundError) as again:
        await client.admin.delete_topic(topic)
    assert "topic list" in str(again.value.fix)  # creating it would be no help


async def test_system_topics_are_shown_on_request_and_protected(client: eruca.AsyncClient) -> None:
    shown = await client.admin.topics_of_broker("broker-a", include_system=True)

    assert any(topic.is_system for topic in shown)
    assert not any(t.is_system for t in await client.admin.topics_of_broker("broker-a"))
    with pytest.raises(SystemTopicError):
        await client.admin.delete_topic("ERUCA_SYS_EVENTS")


@pytest.mark.parametrize("where", [{"broker_name": "broker-z"}, {"cluster": "elsewhere"}])
async def test_a_broker_that_is_not_there_is_an_error(
    client: eruca.AsyncClient, name: str, where: dict[str, str]
) -> None:
    with pytest.raises(BrokerNotFoundError, match=r"broker-z|elsewhere"):
        await client.admin.create_topic(name, **where)  # type: ignore[arg-type]


async def test_offsets_of_queues_and_of_times_are_shown(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer() as producer:
        result = await producer.send(eruca.Message(topic, "x"))

    queues = await client.admin.queues(topic)
    assert sum(queue.max_offset for queue in queues.values()) == 1
    assert queues[result.queue].latest_stored_at == result.stored_at
    admin, moment = client.admin, result.stored_at
    assert await admin.offset_by_time(result.queue, moment) == 0
    assert await admin.offset_by_time(result.queue, moment + timedelta(seconds=1)) == 1
    assert await admin.offset_by_time(result.queue, moment, boundary="upper") == 0


async def test_a_time_without_a_zone_is_refused(client: eruca.AsyncClient, topic: str) -> None:
    with pytest.raises(eruca.ValidationError, match="time zone"):
        await client.admin.offset_by_time(
            eruca.MessageQueue(topic, "broker-a", 0),
            datetime(2026, 1, 1),  # noqa: DTZ001  (that is the point)
        )


async def test_where_a_group_stands_is_set_and_shown(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    one, other = eruca.MessageQueue(topic, "broker-a", 0), eruca.MessageQueue(topic, "broker-b", 1)
    await client.admin.groups.commit(name, {one: 0, other: 0})

    everywhere = await client.admin.groups.offsets(name)
    in_topic = await client.admin.groups.offsets(name, topic=topic)

    assert {q: o.committed_offset for q, o in everywhere.items()} == {one: 0, other: 0}
    assert {q for q, o in in_topic.items() if o.committed_offset is None} == {
        eruca.MessageQueue(topic, "broker-a", 1),
        eruca.MessageQueue(topic, "broker-b", 0),
    }


async def test_values_that_the_contract_does_not_allow_are_named_by_the_sdks_own_error(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    admin, queue = client.admin, eruca.MessageQueue(topic, "broker-a", 0)
    await admin.groups.create(name)

    with pytest.raises(eruca.ValidationError, match="queue_count"):
        await admin.create_topic(name, queue_count=10**6)
    with pytest.raises(eruca.ValidationError, match="retries_max"):
        await admin.groups.create(name, retries_max=10**6)
    with pytest.raises(eruca.ValidationError, match="offset"):
        await admin.groups.commit(name, {queue: 2**70})
    with pytest.raises(eruca.ValidationError, match="offset"):
        await admin.groups.reset(name, topic, 2**70)
    with pytest.raises(eruca.ValidationError, match="ids"):
        await admin.groups.redrive(name, ids={"broker-a": [-1]})
    async with client.pull_consumer(name, topics=topic, commit_seconds=None) as consumer:
        with pytest.raises(eruca.ValidationError, match="offset"):
            await consumer.commit({queue: 2**70})


async def test_brokers_clusters_and_name_servers_tell_how_they_are(
    client: eruca.AsyncClient, cluster: InProcessCluster
) -> None:
    assert await client.admin.clusters() == {"eruca": ["broker-a", "broker-b"]}
    assert [group.broker_name for group in await client.admin.brokers()] == ["broker-a", "broker-b"]
    statuses = await client.admin.cluster_status()
    assert {name: status.broker_name for name, status in statuses.items()} == {
        "broker-a": "broker-a",
        "broker-b": "broker-b",
    }
    assert (await client.admin.broker_status("broker-a")).is_writable
    assert await client.admin.broker_url("broker-a") == cluster.broker_urls["broker-a"]
    (status,) = (await client.admin.namesrv_statuses()).values()
    assert not isinstance(status, eruca.ErucaError)
    assert status.brokers == 2


async def test_a_name_server_that_does_not_answer_is_shown_with_its_error(
    cluster: InProcessCluster,
) -> None:
    nobody = "http://127.0.0.1:1"
    async with eruca.AsyncClient([*cluster.namesrv_urls, nobody]) as client:
        statuses = await client.admin.namesrv_statuses()

    assert isinstance(statuses[nobody], eruca.TransportError)


async def test_a_message_is_found_by_its_offset_id(client: eruca.AsyncClient, topic: str) -> None:
    async with client.producer() as producer:
        result = await producer.send(eruca.Message(topic, "x"))

    view = await client.admin.message_by_offset_id(result.offset_message_id)

    assert (view.message.message_id, view.log_offset) == (result.message_id, result.log_offset)


@pytest.mark.parametrize(
    ("offset_message_id", "error"),
    [
        ("nonsense", eruca.ValidationError),
        ("0A0000010000000100000000000000FF", RecordNotFoundError),
    ],
)
async def test_an_offset_id_that_leads_nowhere_is_an_error(
    client: eruca.AsyncClient, offset_message_id: str, error: type[eruca.ErucaError]
) -> None:
    with pytest.raises(error):
        await client.admin.message_by_offset_id(offset_message_id)


async def test_messages_are_found_by_key_or_unique_id_on_all_brokers(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer() as producer:
        results = [
            await producer.send(eruca.Message(topic, str(n), keys=f"key {n % 2}".split()[1]))
            for n in range(8)
        ]

    by_key = await client.admin.messages_by_key(topic, "1")
    by_id = await client.admin.messages_by_key(topic, results[3].message_id)

    assert sorted(m.body.text or "" for m in by_key if m.body is not None) == ["1", "3", "5", "7"]
    assert [m.message_id for m in by_id] == [results[3].message_id]
    assert len(await client.admin.messages_by_key(topic, "1", limit=3)) == 3
    assert await client.admin.messages_by_key(topic, "1", since=datetime.now(UTC)) == []


async def test_what_is_not_named_of_a_topic_or_a_group_stays_as_it_is(
    client: eruca.AsyncClient, name: str
) -> None:
    admin = client.admin
    policy = eruca.CustomizedRetryPolicy(delays_seconds=[1])
    await admin.create_topic(name, queue_count=2, permission="r", ordered=True)
    await admin.groups.create(name, start="earliest", retries_max=3, retry_policy=policy)

    topics = await admin.create_topic(name, permission="rw")
    groups = await admin.groups.create(name, ordered=True)
    default = await admin.groups.create(name, retry_policy="rocketmq")

    assert {(t.read_queue_count, t.write_queue_count) for t in topics.values()} == {(2, 2)}
    assert {(t.permission, t.ordered) for t in topics.values()} == {("rw", True)}
    assert {(g.start, g.retries_max, g.ordered) for g in groups.values()} == {("earliest", 3, True)}
    assert [g.retry_policy for g in groups.values()] == [policy, policy]
    assert [g.retry_policy for g in default.values()] == [None, None]
    assert {g.retries_max for g in default.values()} == {3}


async def test_queues_that_a_group_has_still_to_read_go_only_by_force(
    client: eruca.AsyncClient, topic: str
) -> None:
    admin = client.admin
    async with client.producer() as producer:
        await producer.send_many(eruca.Message(topic, "x", sharding_key=str(n)) for n in range(40))
    queues = await admin.queues(topic)
    await admin.groups.commit(topic, dict.fromkeys(queues, 0))

    with pytest.raises(eruca.ConflictError, match="unread messages"):
        await admin.create_topic(topic, queue_count=1)
    before = await admin.groups.lag(topic)
    await admin.create_topic(topic, queue_count=1, force=True)
    after = await admin.groups.lag(topic)

    assert (before.lag, after.lag) == (40, 40)


async def test_a_look_up_by_key_returns_all_of_every_broker(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer() as producer:
        results = await producer.send_many(
            eruca.Message(topic, str(number), keys=["all"], sharding_key=str(number))
            for number in range(300)
        )
    found = await client.admin.messages_by_key(topic, "all")
    newest = await client.admin.messages_by_key(topic, "all", limit=100)

    assert len({result.queue.broker_name for result in results}) == 2
    assert {m.body.text for m in found if m.body is not None} == {
        str(number) for number in range(300)
    }
    assert newest == found[:100]


async def test_the_name_servers_table_is_written_and_read(
    client: eruca.AsyncClient, name: str
) -> None:
    admin = client.admin
    await admin.put_kv(name, "key|with.dots", "value")

    assert await admin.kv(name, "key|with.dots") == "value"
    assert await admin.list_kv(name) == {"key|with.dots": "value"}
    await admin.delete_kv(name, "key|with.dots")
    assert await admin.list_kv(name) == {}
    with pytest.raises(KeyNotFoundError):
        await admin.kv(name, "key|with.dots")
    with pytest.raises(KeyNotFoundError):
        await admin.delete_kv(name, "key|with.dots")
