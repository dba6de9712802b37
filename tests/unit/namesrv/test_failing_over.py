"""The route table while masters change: only a larger epoch takes the place of a live master."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eruca.contract.errors import ConflictError, OverloadedError, StaleEpochError, ValidationError
from eruca.contract.fields import BrokerRole
from eruca.contract.routes import BrokerRegistration
from eruca_namesrv.route_table import RouteTable
from support.registrations import HOST, OTHER_HOST, register, registration


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
