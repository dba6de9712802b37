"""Two clocks, and every order of events between them: no two replicas are certain at once."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf

import pytest

from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.master_lease import ANSWERS_MAX, MasterLease, Promise

TWO, THREE = Member(2, "b"), Member(3, "c")
STEPS_MAX = 8
EVENTS = ("a second", "answer", "receive", "arrive", "restart")


@dataclass
class Pair:
    """A master, one other member, and the requests between them; time is real."""

    lease: MasterLease
    promise: Promise
    master_rate: float  # seconds of its clock in a second
    replica_rate: float
    promise_seconds: float
    now: int = 0
    answers: list[int] = field(default_factory=list)  # on their way to the replica
    fetches: list[int] = field(default_factory=list)  # … to the master, with what they quote

    def happen(self, event: str) -> None:
        match event:
            case "a second":
                self.now += 1
            case "answer":
                self.answers.append(self.lease.answering(TWO, self.now * self.master_rate))
            case "receive" if self.answers:
                self.promise.fetching(self.now * self.replica_rate)
                self.fetches.append(self.answers.pop())
            case "arrive" if self.fetches:
                self.lease.quoted(TWO, self.fetches.pop(0))
            case "restart":
                self.answers = []
                self.promise = Promise(self.now * self.replica_rate, self.promise_seconds)
            case _:
                pass

    def gap(self) -> float:
        """Return the real seconds between the end of the lease and the end of the promise."""
        lease_until = self.lease.until([TWO]) / self.master_rate
        return self.promise.propose_at(0) / self.replica_rate - lease_until


def gaps(pair: Pair, steps: int = STEPS_MAX) -> Iterator[float]:
    """Yield the gap after every sequence of events."""
    yield pair.gap()
    if steps:
        for event in EVENTS:
            following = deepcopy(pair)
            following.happen(event)
            yield from gaps(following, steps - 1)


def pair_of(
    *, lease: float = 4.0, promise: float = 5.0, master: float = 1.0, replica: float = 1.0
) -> Pair:
    return Pair(MasterLease(lease), Promise(0, promise), master, replica, promise_seconds=promise)


@pytest.mark.parametrize(("master", "replica"), [(1.0, 1.0), (0.8, 1.0), (1.0, 1.25), (1.2, 0.9)])
def test_a_lease_ends_before_the_promise_that_it_rests_on(master: float, replica: float) -> None:
    assert min(gaps(pair_of(master=master, replica=replica), 6)) >= -1e-9


@pytest.mark.parametrize(
    "pair",
    [pair_of(lease=5.0, promise=4.0), pair_of(master=0.7)],
    ids=["lease longer than promise", "clocks apart by more than a quarter"],
)
def test_the_search_finds_a_lease_that_is_too_long(pair: Pair) -> None:
    assert min(gaps(pair, 4)) < 0


def test_the_search_finds_a_lease_that_counts_from_the_arrival(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = pair_of(promise=4.0)

    def quoted_now(self: MasterLease, member: Member, number: int) -> None:
        self._quoted_at[member] = float(arrived_at[0])

    arrived_at = [0]
    monkeypatch.setattr(MasterLease, "quoted", quoted_now)
    for event in ("answer", "receive", "a second", "arrive"):
        arrived_at[0] = pair.now
        pair.happen(event)

    assert pair.gap() < 0


def test_every_other_member_counts() -> None:
    lease = MasterLease(4.0)
    lease.quoted(TWO, lease.answering(TWO, 10.0))
    lease.quoted(THREE, lease.answering(THREE, 12.0))

    assert lease.until([TWO, THREE]) == 14.0
    assert lease.until([THREE]) == 16.0
    assert lease.until([TWO, Member(4, "silent")]) == -inf
    assert lease.until([]) == inf


def test_each_of_the_last_answers_proves_when_it_was_sent() -> None:
    """Several fetches are under way, so a replica quotes answers after later ones were sent."""
    lease = MasterLease(4.0)
    numbers = [lease.answering(TWO, float(second)) for second in range(ANSWERS_MAX + 1)]
    for unknown in (0, numbers[0], numbers[-1] + 1):
        lease.quoted(TWO, unknown)
        lease.quoted(THREE, unknown)
    assert lease.until([TWO]) == lease.until([THREE]) == -inf

    lease.quoted(TWO, numbers[3])
    assert lease.until([TWO]) == 3.0 + 4.0
    lease.quoted(TWO, numbers[1])
    assert lease.until([TWO]) == 3.0 + 4.0, "it arrived late"
    assert lease.until([THREE]) == -inf


def test_replicas_propose_themselves_one_after_the_other() -> None:
    promise = Promise(0.0, 5.0)
    promise.fetching(3.0)
    promise.fetching(2.0)  # an earlier one is no shorter promise

    assert [promise.propose_at(rank) for rank in (0, 1, 2)] == [8.0, 9.25, 10.5]
    assert promise.until == 8.0

    promise.new_master(20.0)
    assert promise.until == 25.0
