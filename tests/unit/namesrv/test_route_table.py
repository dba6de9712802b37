"""The route table: who lives, what a topic's route is, and which change touches which topics."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eruca.contract.errors import BrokerNotFoundError, ConflictError, OverloadedError
from eruca.contract.fields import Permission
from eruca.contract.routes import BrokerRegistration
from eruca.contract.topics import OrderConfig, TopicConfig
from eruca_namesrv.route_table import Registered, RouteTable

HOST = "10.0.0.1:10911"
OTHER_HOST = "10.0.0.2:10911"


def topic(name: str, queues: int = 4, permission: Permission = "rw") -> TopicConfig:
    return TopicConfig(
        topic=name, read_queue_count=queues, write_queue_count=queues, permission=permission
    )


def registration(
    *topics: str | TopicConfig,
    host: str = HOST,
    cluster: str = "c",
    version: int = 1,
    expiry: float = 120,
    light: bool = False,
) -> BrokerRegistration:
    listed = [topic(t) if isinstance(t, str) else t for t in topics]
    return BrokerRegistration(
        cluster=cluster,
        urls={"default": f"http://{host}"},
        store_host=host,
        data_version=version,
        topics=None if light else listed,
        expiry_seconds=expiry,
    )


@pytest.fixture
def table() -> RouteTable:
    return RouteTable(brokers_max=100, topics_max=100)


def register(
    table: RouteTable, name: str, broker_id: int, told: BrokerRegistration, now: float = 0
) -> Registered:
    return table.register(name, broker_id, told, now=now, now_ms=round(now * 1000))


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


def test_a_broker_that_changes_its_role_is_no_further_one() -> None:
    table = RouteTable(brokers_max=2, topics_max=2)
    register(table, "a", 0, registration("t"))
    register(table, "a", 1, registration(host=OTHER_HOST))

    register(table, "a", 2, registration(host=OTHER_HOST))

    assert [broker.broker_id for broker in table.brokers()] == [0, 2]
    assert table.broker_count == 2
    with pytest.raises(OverloadedError, match="brokers_max"):
        register(table, "a", 1, registration(host="10.9.9.9:10911"))


class LivingTable(RuleBasedStateMachine):
    """Brokers that come, speak and go, beside a dumb model: a list of the last registrations."""

    names = st.sampled_from(["a", "b"])
    ids = st.integers(0, 2)
    topics = st.frozensets(st.sampled_from(["t", "u", "v"]))

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.table = RouteTable(brokers_max=100, topics_max=100)
        self.seen: dict[tuple[str, int], float] = {}
        self.held: dict[str, frozenset[str]] = {}
        self.versions = 0

    @rule(name=names, broker_id=ids, topics=topics, light=st.booleans())
    def register(self, name: str, broker_id: int, topics: frozenset[str], *, light: bool) -> None:
        """Register, each (name, id) at an address of its own."""
        self.forget_expired()
        self.versions += 1
        routes = self.routes()
        told = registration(
            *sorted(topics),
            host=f"10.0.{int(name == 'b')}.{broker_id}:10911",
            version=self.versions,
            expiry=10,
            light=light,
        )
        self.table.expire(self.now)
        changed = register(self.table, name, broker_id, told, now=self.now).changed_topics
        self.seen[name, broker_id] = self.now
        if broker_id == 0 and not light:
            self.held[name] = topics
        assert {t for t, r in self.routes().items() if r != routes[t]} == changed

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def unregister(self, data: st.DataObject) -> None:
        self.forget_expired()
        self.table.expire(self.now)
        if self.seen:
            name, broker_id = data.draw(st.sampled_from(sorted(self.seen)))
            routes = self.routes()
            changed = self.table.unregister(name, broker_id, store_host=None)
            del self.seen[name, broker_id]
            self.forget_expired()
            assert {t for t, r in self.routes().items() if r != routes[t]} == changed

    @rule(seconds=st.sampled_from([1, 4, 10, 11]))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        routes = self.routes()
        changed = self.table.expire(self.now)
        self.forget_expired()
        assert {t for t, r in self.routes().items() if r != routes[t]} == changed

    @invariant()
    def the_table_holds_what_the_model_holds(self) -> None:
        self.forget_expired()
        self.table.expire(self.now)
        assert {(b.broker_name, b.broker_id) for b in self.table.brokers()} == self.seen.keys()
        assert self.table.broker_count == len(self.seen)
        assert set(self.table.topics()) == set().union(*self.held.values())
        assert self.table.topic_entry_count == sum(map(len, self.held.values()))
        for name in ("t", "u", "v"):
            route = self.table.route(name)
            holders = sorted(n for n, topics in self.held.items() if name in topics)
            assert [q.broker_name for q in (route.queues if route else [])] == holders

    def routes(self) -> dict[str, object]:
        return {name: self.table.route(name) for name in ("t", "u", "v")}

    def forget_expired(self) -> None:
        self.seen = {key: at for key, at in self.seen.items() if at + 10 >= self.now}
        alive = {name for name, _ in self.seen}
        self.held = {name: topics for name, topics in self.held.items() if name in alive}


TestLivingTable = LivingTable.TestCase
TestLivingTable.settings = settings(max_examples=60, deadline=None)
