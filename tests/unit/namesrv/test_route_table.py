"""The route table: who lives, what a topic's route is, and which change touches which topics."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eruca.contract.errors import (
    BrokerNotFoundError,
    ConflictError,
    OverloadedError,
    StaleEpochError,
    ValidationError,
)
from eruca.contract.fields import BrokerRole, Permission
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
    epoch: int = 0,
    replica_id: int | None = None,
    role: BrokerRole | None = None,
    former: Sequence[str] = (),
) -> BrokerRegistration:
    listed = [topic(t) if isinstance(t, str) else t for t in topics]
    return BrokerRegistration(
        cluster=cluster,
        urls={"default": f"http://{host}"},
        store_host=host,
        data_version=version,
        topics=None if light else listed,
        expiry_seconds=expiry,
        epoch=epoch,
        replica_id=replica_id,
        role=role,
        former_store_hosts=list(former),
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


# --- Replicas of one name -------------------------------------------------------------------------


def where(table: RouteTable) -> dict[int, str]:
    """Return the addresses of broker a's processes by id, as the route of t has them."""
    route = table.route("t")
    assert route is not None
    return route.brokers[0].store_hosts


def test_a_master_of_a_larger_epoch_takes_the_place_at_once(table: RouteTable) -> None:
    register(table, "a", 0, registration("t", epoch=7, replica_id=1))
    register(table, "a", 2, registration(host=OTHER_HOST, epoch=7, replica_id=2, light=True))

    taken = register(table, "a", 0, registration("t", host=OTHER_HOST, epoch=8, replica_id=2))

    assert taken.is_new
    assert taken.changed_topics == {"t"}
    route = table.route("t")
    assert route is not None
    [broker] = route.brokers
    assert broker.store_hosts == {0: OTHER_HOST}
    assert (broker.epoch, broker.roles, broker.replica_ids) == (8, {0: "master"}, {0: 2})
    assert table.broker_count == 1


def test_a_master_that_was_succeeded_is_refused_and_returns_as_a_standby(
    table: RouteTable,
) -> None:
    register(table, "a", 0, registration("t", epoch=7, replica_id=1))
    register(table, "a", 0, registration("t", host=OTHER_HOST, epoch=8, replica_id=2))
    before = table.route("t")

    with pytest.raises(StaleEpochError, match="epoch 8; a master of epoch 7"):
        register(table, "a", 0, registration("t", "u", epoch=7, replica_id=1))
    assert table.route("t") == before
    back = register(table, "a", 1, registration(epoch=8, replica_id=1, light=True))

    assert not back.needs_topics
    assert where(table) == {0: OTHER_HOST, 1: HOST}


def test_a_master_that_becomes_a_standby_first_leaves_its_name_without_one(
    table: RouteTable,
) -> None:
    register(table, "a", 0, registration("t", epoch=7, replica_id=1))

    register(table, "a", 1, registration(epoch=7, replica_id=1, light=True))

    assert where(table) == {1: HOST}
    register(table, "a", 0, registration("t", host=OTHER_HOST, epoch=8, replica_id=2))
    assert where(table) == {0: OTHER_HOST, 1: HOST}


def test_without_a_larger_epoch_a_master_elsewhere_is_refused(table: RouteTable) -> None:
    register(table, "a", 0, registration("t", epoch=7))

    with pytest.raises(ConflictError, match=f"registered at {HOST}") as refused:
        register(table, "a", 0, registration("t", host=OTHER_HOST, epoch=7))

    assert not isinstance(refused.value, StaleEpochError)
    assert where(table) == {0: HOST}


def test_an_epoch_is_known_from_a_standby_before_its_master_registers(table: RouteTable) -> None:
    register(table, "a", 0, registration("t", epoch=7))
    register(table, "a", 3, registration(host="10.0.0.3:10911", epoch=8, replica_id=3, light=True))

    with pytest.raises(StaleEpochError):
        register(table, "a", 0, registration(epoch=7, light=True))

    assert where(table)[0] == HOST  # it names the new master to those who still ask it
    register(table, "a", 0, registration("t", host=OTHER_HOST, epoch=8, replica_id=2))
    assert where(table)[0] == OTHER_HOST


def test_a_name_that_is_gone_begins_with_any_epoch(table: RouteTable) -> None:
    register(table, "a", 0, registration("t", epoch=7))
    table.unregister("a", 0, store_host=HOST)

    register(table, "a", 0, registration("t"))

    assert where(table) == {0: HOST}


def test_standbys_alone_keep_a_topic_readable(table: RouteTable) -> None:
    told = registration("t", host=OTHER_HOST, epoch=7, replica_id=2)

    assert register(table, "a", 2, told.model_copy(update={"topics": None})).needs_topics
    assert not register(table, "a", 2, told).needs_topics

    assert where(table) == {2: OTHER_HOST}
    other = registration("u", host="10.0.0.3:10911", epoch=7, replica_id=3)
    assert not register(table, "a", 3, other).needs_topics
    assert set(table.topics()) == {"t"}
    register(table, "a", 0, registration("t", "v", epoch=7, replica_id=1))
    assert set(table.topics()) == {"t", "v"}


def test_the_topics_of_a_new_term_are_asked_for_whatever_their_version(table: RouteTable) -> None:
    register(table, "a", 0, registration("t", epoch=7, version=5))

    assert not register(table, "a", 0, registration(epoch=7, version=5, light=True)).needs_topics
    assert register(table, "a", 0, registration(epoch=8, version=5, light=True)).needs_topics


def test_a_role_that_changes_changes_the_routes(table: RouteTable) -> None:
    register(table, "a", 0, registration("t", epoch=7))
    joining = registration(host=OTHER_HOST, epoch=7, replica_id=2, role="learner", light=True)
    assert register(table, "a", 2, joining).changed_topics == {"t"}

    in_sync = joining.model_copy(update={"role": "standby"})
    assert register(table, "a", 2, in_sync).changed_topics == {"t"}
    assert register(table, "a", 2, in_sync).changed_topics == set()


@pytest.mark.parametrize(("broker_id", "role"), [(0, "standby"), (0, "learner"), (1, "master")])
def test_only_broker_id_0_is_a_master(table: RouteTable, broker_id: int, role: BrokerRole) -> None:
    with pytest.raises(ValidationError, match="/body/role: expected"):
        register(table, "a", broker_id, registration("t", epoch=1, role=role))

    assert table.broker_count == 0


def test_a_broker_that_brings_no_topics_is_not_refused_for_them() -> None:
    table = RouteTable(brokers_max=10, topics_max=1)
    register(table, "a", 0, registration("t", epoch=7))

    register(table, "a", 2, registration("t", "u", host=OTHER_HOST, epoch=7, replica_id=2))

    assert set(table.topics()) == {"t"}


class FailingOver(RuleBasedStateMachine):
    """Three replicas that register in any role and epoch, beside a model of their group."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable(brokers_max=100, topics_max=100)
        self.epoch = 0  # of the group, while it has a broker
        self.places: dict[int, int] = {}  # replica by broker id
        self.epochs: dict[int, int] = {}  # of the masters' last registrations, by replica

    @rule(replica=st.integers(1, 3), epoch=st.integers(1, 5))
    def lead(self, replica: int, epoch: int) -> None:
        told = self.told(replica, epoch)
        holder = self.places.get(0)
        if epoch < self.epoch:
            with pytest.raises(StaleEpochError):
                register(self.table, "a", 0, told)
        elif holder not in (None, replica) and self.epochs[holder] == epoch:
            with pytest.raises(ConflictError):
                register(self.table, "a", 0, told)
        else:
            register(self.table, "a", 0, told)
            self.settle(0, replica, epoch)
            self.epochs[replica] = epoch

    @rule(replica=st.integers(1, 3), epoch=st.integers(1, 5))
    def follow(self, replica: int, epoch: int) -> None:
        register(self.table, "a", replica, self.told(replica, epoch))
        self.settle(replica, replica, epoch)

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        broker_id = data.draw(st.sampled_from(sorted(self.places)))
        self.table.unregister("a", broker_id, store_host=None)
        del self.places[broker_id]
        self.epoch = self.epoch if self.places else 0

    @invariant()
    def the_route_is_what_the_model_says(self) -> None:
        route = self.table.route("t")
        assert (route is not None) == bool(self.places)
        if route is not None:
            [broker] = route.brokers
            assert broker.replica_ids == self.places
            assert broker.epoch == self.epoch
            assert {i: role == "master" for i, role in broker.roles.items()} == {
                i: i == 0 for i in self.places
            }

    def told(self, replica: int, epoch: int) -> BrokerRegistration:
        return registration("t", host=f"10.0.0.{replica}:1", epoch=epoch, replica_id=replica)

    def settle(self, broker_id: int, replica: int, epoch: int) -> None:
        self.places = {i: r for i, r in self.places.items() if r != replica} | {broker_id: replica}
        self.epoch = max(self.epoch, epoch)


TestFailingOver = FailingOver.TestCase
TestFailingOver.settings = settings(max_examples=60, deadline=None)


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
