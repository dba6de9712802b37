"""The route table under any sequence of registrations, compared with a simple model."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eruca_namesrv.route_table import RouteTable
from support.registrations import register, registration


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
