"""The route table: routes, heartbeats, expiry, and the limits of names."""

from __future__ import annotations

import pytest

from eruca.contract.errors import BrokerNotFoundError, ConflictError, OverloadedError
from eruca.contract.topics import OrderConfig, TopicConfig
from eruca_namesrv.route_table import RouteTable
from support.registrations import HOST, OTHER_HOST, register, registration, topic


def test_a_route_has_every_brokers_queues_sorted_by_broker_name(table: RouteTable) -> None:
    register(table, "b", 0, registration(topic("t", 2), host=OTHER_HOST))
    register(table, "a", 0, registration(topic("t", 8), "other"))

    route = table.route("t")

    assert route is not None
    assert [(q.broker_name, q.read_queue_count) for q in route.queues] == [("a", 8), ("b", 2)]
    assert [b.broker_name for b in route.brokers] == ["a", "b"]
    assert route.brokers[0].urls == {0: {"default": f"http://{HOST}"}}
    assert route.brokers[0].store_hosts == {0: HOST}
    assert set(table.topics()) == {"t", "other"}


def test_the_latest_order_config_of_a_topics_brokers_is_in_its_route(table: RouteTable) -> None:
    def ordered(version: int, **queues: int) -> TopicConfig:
        order = OrderConfig(version=version, queues=queues)
        return topic("t").model_copy(update={"ordered": True, "order_config": order})

    def order_config() -> str | None:
        route = table.route("t")
        assert route is not None
        return route.order_config

    register(table, "a", 0, registration("t"))
    assert order_config() is None
    register(table, "b", 0, registration(ordered(2, b=1, a=4), host=OTHER_HOST))
    assert order_config() == "a:4;b:1"
    told = register(table, "a", 0, registration(ordered(1, a=4), version=2))
    assert told.changed_topics == {"t"}
    assert order_config() == "a:4;b:1"
    register(table, "a", 0, registration(ordered(3, a=4), version=3))
    assert order_config() == "a:4"
    table.unregister("a", 0, store_host=None)
    assert order_config() == "a:4;b:1"


def test_an_unknown_topic_has_no_route(table: RouteTable) -> None:
    assert table.route("t") is None


def test_a_registration_changes_the_routes_that_it_makes_different(table: RouteTable) -> None:
    assert register(table, "a", 0, registration("t", "u")).changed_topics == {"t", "u"}
    assert register(table, "a", 0, registration("t", "u", version=2)).changed_topics == set()
    more = registration(topic("t", 8), "u", version=3)
    assert register(table, "a", 0, more).changed_topics == {"t"}
    closed = registration(topic("t", 8), topic("u", 4, "r"), version=4)
    assert register(table, "a", 0, closed).changed_topics == {"u"}


def test_a_topic_that_is_no_longer_listed_is_gone(table: RouteTable) -> None:
    register(table, "a", 0, registration("kept", "deleted"))

    changed = register(table, "a", 0, registration("kept", version=2)).changed_topics

    assert changed == {"deleted"}
    assert table.route("deleted") is None
    assert table.topic_entry_count == 1


def test_a_topic_stays_while_another_broker_has_it(table: RouteTable) -> None:
    register(table, "a", 0, registration("t"))
    register(table, "b", 0, registration("t", host=OTHER_HOST))

    register(table, "a", 0, registration(version=2))

    route = table.route("t")
    assert route is not None
    assert [q.broker_name for q in route.queues] == ["b"]


def test_a_heartbeat_keeps_topics_and_asks_for_newer_ones(table: RouteTable) -> None:
    assert register(table, "a", 0, registration(light=True)).needs_topics
    assert not register(table, "a", 0, registration("t")).needs_topics

    same = register(table, "a", 0, registration(light=True), now=10)
    newer = register(table, "a", 0, registration(light=True, version=2), now=20)

    assert not same.needs_topics
    assert same.changed_topics == set()
    assert newer.needs_topics
    assert table.route("t") is not None


def test_a_slave_brings_no_topics_and_is_not_asked_for_any(table: RouteTable) -> None:
    slave = register(table, "a", 1, registration("t", host=OTHER_HOST))

    assert not slave.needs_topics
    assert table.route("t") is None


def test_topics_outlive_their_master_while_a_slave_lives(table: RouteTable) -> None:
    register(table, "a", 0, registration("t", expiry=10))
    assert register(table, "a", 1, registration(host=OTHER_HOST)).changed_topics == {"t"}

    assert table.expire(11) == {"t"}

    route = table.route("t")
    assert route is not None
    assert route.brokers[0].urls.keys() == {1}
    assert route.queues[0].permission == "rw"


def test_a_registration_expires_when_more_than_its_time_has_passed(table: RouteTable) -> None:
    register(table, "a", 0, registration("t", expiry=10), now=5)

    assert table.expire(15) == set()
    assert table.route("t") is not None

    assert table.expire(15.001) == {"t"}
    assert table.route("t") is None
    assert (table.broker_count, table.topic_entry_count) == (0, 0)


def test_a_heartbeat_puts_expiry_off(table: RouteTable) -> None:
    register(table, "a", 0, registration("t", expiry=10))
    register(table, "b", 0, registration("u", host=OTHER_HOST, expiry=10))
    register(table, "a", 0, registration(light=True, expiry=10), now=9)

    assert table.expire(15) == {"u"}
    assert table.expire(19) == set()
    assert table.expire(19.5) == {"t"}


def test_an_address_that_changes_its_id_keeps_only_the_new_one(table: RouteTable) -> None:
    register(table, "a", 1, registration(host=OTHER_HOST))
    register(table, "a", 0, registration("t"))
    table.unregister("a", 0, store_host=None)

    changed = register(table, "a", 0, registration("t", host=OTHER_HOST)).changed_topics

    assert changed == {"t"}
    assert [(b.broker_id, b.store_host) for b in table.brokers()] == [(0, OTHER_HOST)]
    assert table.broker_count == 1


@pytest.mark.parametrize("version", [4, 5, 6])
def test_an_id_that_lives_elsewhere_is_refused_and_nothing_changes(
    table: RouteTable, version: int
) -> None:
    register(table, "a", 0, registration("t", version=5))
    before = table.route("t")

    with pytest.raises(ConflictError, match=f"registered at {HOST}, not at {OTHER_HOST}"):
        register(table, "a", 0, registration("t", "u", host=OTHER_HOST, version=version))

    assert table.route("t") == before
    assert table.route("u") is None


def test_an_id_is_free_once_its_registration_is_over(table: RouteTable) -> None:
    register(table, "a", 0, registration("t", expiry=20))
    table.expire(20.5)

    taken = register(table, "a", 0, registration("t", host=OTHER_HOST), now=20.5)

    assert taken.is_new
    assert [b.store_host for b in table.brokers()] == [OTHER_HOST]


def test_a_name_belongs_to_one_cluster(table: RouteTable) -> None:
    register(table, "a", 0, registration("t"))

    with pytest.raises(ConflictError, match="belongs to cluster c"):
        register(table, "a", 1, registration(host=OTHER_HOST, cluster="d"))

    moved = register(table, "a", 0, registration("t", cluster="d"))
    assert moved.changed_topics == {"t"}


def test_a_changed_url_changes_every_route_of_the_broker(table: RouteTable) -> None:
    register(table, "a", 0, registration("t", "u"))
    told = registration(light=True).model_copy(update={"urls": {"default": "http://new:1"}})

    assert register(table, "a", 0, told).changed_topics == {"t", "u"}


def test_unregistering_the_last_broker_takes_its_topics_out_of_every_route(
    table: RouteTable,
) -> None:
    register(table, "a", 0, registration("t"))

    assert table.unregister("a", 0, store_host=HOST) == {"t"}

    assert table.route("t") is None
    assert list(table.brokers()) == []
    with pytest.raises(BrokerNotFoundError, match="a/0"):
        table.unregister("a", 0, store_host=None)
    register(table, "a", 1, registration())
    with pytest.raises(BrokerNotFoundError, match="a/0"):
        table.unregister("a", 0, store_host=None)


def test_a_replaced_broker_does_not_take_its_successor_with_it(table: RouteTable) -> None:
    register(table, "a", 0, registration("t", expiry=20))
    table.expire(20.5)
    register(table, "a", 0, registration("t", host=OTHER_HOST), now=20.5)

    with pytest.raises(ConflictError, match=OTHER_HOST):
        table.unregister("a", 0, store_host=HOST)

    assert table.route("t") is not None


def test_brokers_and_topics_are_capped_by_name() -> None:
    table = RouteTable(brokers_max=1, topics_max=2)
    register(table, "a", 0, registration("t", "u"))

    with pytest.raises(OverloadedError, match="brokers_max"):
        register(table, "b", 0, registration(host=OTHER_HOST))
    with pytest.raises(OverloadedError, match="topics_max"):
        register(table, "a", 0, registration("t", "u", "v", version=2))

    assert set(table.topics()) == {"t", "u"}
    register(table, "a", 0, registration("v", "w", version=2))
