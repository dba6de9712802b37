"""Deliveries beside a model: who has which message, in any order of events, and after any restart.

The machine does what the broker does: it decides upon its state, writes a record, and folds it. A
restart rebuilds the state, from a snapshot somewhere in the history and what was written since,
as the broker does at its start.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eruca_broker.core.consuming.lease_choice import Ahead, ChoiceLimits, choose
from eruca_broker.core.state.lease_events import (
    DeliveriesAcked,
    DeliveriesExtended,
    DeliveriesLeased,
    DeliveriesNacked,
    HeldLease,
    LeasedMessage,
    NackedLease,
    QueueLeaseRefs,
    QueueNacks,
    SnapshotLeases,
    split_leases,
)
from eruca_broker.core.state.leases import HandleState, Leases, Positions, Queue, QueueLeases

GROUP = "g"
QUEUE: Queue = ("t", 0)
ATTEMPTS_MAX = 3
UNFINISHED_MAX = 6
LOOK_AHEAD = 5


@dataclass(frozen=True)
class Reset:
    """Somebody moved the group."""

    offset: int


History = DeliveriesLeased | DeliveriesAcked | DeliveriesExtended | DeliveriesNacked | Reset


def fold(leases: Leases, positions: Positions, event: History, log_offset: int) -> bool:
    match event:
        case DeliveriesLeased():
            return leases.lease(event, log_offset, positions)
        case DeliveriesAcked():
            return leases.ack(event, positions)
        case DeliveriesExtended():
            return leases.extend(event)
        case DeliveriesNacked():
            return leases.nack(event, positions)
        case Reset():
            leases.forget_queue(GROUP, QUEUE)
            positions[QUEUE] = event.offset
            return True


@dataclass
class Given:
    """A handle somebody was given."""

    offset: int
    attempt: int
    fence: int
    until: int
    is_spent: bool = False  # acknowledged, given up, superseded or ended by a reset


class Deliveries(RuleBasedStateMachine):
    """One queue, one group, any number of clients."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000
        self.messages: list[str | None] = []  # sharding keys, by offset
        self.min_offset = 0
        self.is_ordered = False
        self.leases = Leases()
        self.positions: Positions = {QUEUE: 0}
        self.history: list[History] = []
        self.given: list[Given] = []
        self.done: set[int] = set()  # acknowledged, dead or deleted since the last reset
        self.begun_at = 0  # where the group was put last

    @initialize(is_ordered=st.booleans())
    def begin(self, is_ordered: bool) -> None:
        self.is_ordered = is_ordered
        self.messages += ["a", "a", "b"]

    # --- What happens -----------------------------------------------------------------------------

    @rule(keys=st.lists(st.sampled_from(["a", "a", "b", "c", None]), min_size=3, max_size=6))
    def send(self, keys: list[str | None]) -> None:
        self.messages += keys

    @rule(seconds=st.integers(1, 40))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(seconds=st.integers(1, 30))
    def receive_many(self, seconds: int) -> None:
        self.receive(4, seconds, None)

    @rule(count=st.integers(1, 4), seconds=st.integers(1, 30), wants=st.sampled_from([None, 2]))
    def receive_some(self, count: int, seconds: int, wants: int | None) -> None:
        self.receive(count, seconds, wants)

    def receive(self, count: int, seconds: int, wants: int | None) -> None:
        """Receive; where *wants* is given, a filter lets only every other message pass."""
        queue = self._queue()
        first = max(queue.position, self.min_offset)
        end = min(first + LOOK_AHEAD, len(self.messages))
        offsets = [n for n in range(first, end) if wants is None or n % wants == 0]
        choice = choose(
            queue,
            Ahead(offsets, max(end, first)),
            ChoiceLimits(count, UNFINISHED_MAX, ATTEMPTS_MAX),
            now_ms=self.now,
            min_offset=self.min_offset,
            order_key=self.messages.__getitem__ if self.is_ordered else None,
        )
        event = DeliveriesLeased(
            GROUP,
            *QUEUE,
            queue.position,
            choice.position,
            self.now + seconds,
            [LeasedMessage(*one) for one in choice.leased],
            choice.overtaken,
            [*choice.dead, *choice.gone],
        )
        passed_over = set(range(queue.position, choice.position)) - set(offsets)
        before = queue.copy()

        assert self._write(event)

        for offset, attempt in choice.leased:
            self._check_handed_out(before, offset, attempt)
        self.done.update(choice.dead, choice.gone)
        self.done.update(passed_over)
        for given in self.given:
            given.is_spent |= given.offset in {o for o, _ in choice.leased} | self.done
        fence = len(self.history)
        self.given += [Given(o, a, fence, self.now + seconds) for o, a in choice.leased]

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        chosen = self._some_given(data)
        refs = [QueueLeaseRefs(*QUEUE, [HeldLease(g.offset, g.fence) for g in chosen])]
        if self._are_valid(chosen):
            assert self._write(DeliveriesAcked(GROUP, refs))
            self.done.update(g.offset for g in chosen)
            self._spend(chosen)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), seconds=st.integers(0, 20))
    def give_up(self, data: st.DataObject, seconds: int) -> None:
        chosen = self._some_given(data)
        if not self._are_valid(chosen):
            return
        again = [g for g in chosen if g.attempt < ATTEMPTS_MAX]
        dead = [g for g in chosen if g.attempt >= ATTEMPTS_MAX]
        nacks = [NackedLease(g.offset, g.fence, self.now + seconds) for g in again]
        part = QueueNacks(*QUEUE, nacks, [HeldLease(g.offset, g.fence) for g in dead])
        assert self._write(DeliveriesNacked(GROUP, [part]))
        self.done.update(g.offset for g in dead)
        self._spend(chosen)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), seconds=st.integers(1, 40))
    def extend(self, data: st.DataObject, seconds: int) -> None:
        chosen = self._some_given(data)
        if self._are_valid(chosen):
            refs = [QueueLeaseRefs(*QUEUE, [HeldLease(g.offset, g.fence) for g in chosen])]
            assert self._write(DeliveriesExtended(GROUP, self.now + seconds, refs))
            for given in chosen:
                given.until = self.now + seconds

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def a_record_comes_late(self, data: st.DataObject) -> None:
        """Fold a decision after another event; the late decision changes nothing."""
        [given] = self._some_given(data, count=1)
        if given.is_spent:
            refs = [QueueLeaseRefs(*QUEUE, [HeldLease(given.offset, given.fence)])]
            assert not self._write(DeliveriesAcked(GROUP, refs))
        ahead = self._queue().position + 1
        stale = DeliveriesLeased(GROUP, *QUEUE, ahead, ahead + 1, 9, [LeasedMessage(ahead, 1)])
        assert not self._write(stale)

    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        to = data.draw(st.integers(self.min_offset, len(self.messages)))
        assert self._write(Reset(to))
        self.begun_at = to
        self.done = {offset for offset in self.done if offset < to} | set(range(to))
        self.done -= set(range(to, len(self.messages)))
        for given in self.given:
            given.is_spent = True

    @rule(data=st.data())
    def retention(self, data: st.DataObject) -> None:
        self.min_offset = data.draw(st.integers(self.min_offset, len(self.messages)))

    @rule(data=st.data(), items_max=st.integers(1, 3))
    def restart(self, data: st.DataObject, items_max: int) -> None:
        """Rebuild the state: from a snapshot taken anywhere, and the records behind it."""
        cut = data.draw(st.integers(0, len(self.history)))
        leases, positions = Leases(), {QUEUE: 0}
        for log_offset, event in enumerate(self.history[:cut], 1):
            fold(leases, positions, event, log_offset)
        written = [
            msgspec.json.encode(piece)
            for piece in split_leases(leases.snapshot(), items_max=items_max)
        ]
        restored = Leases()
        for piece in written:
            restored.restore(msgspec.json.decode(piece, type=SnapshotLeases))
        for log_offset, event in enumerate(self.history[cut:], cut + 1):
            fold(restored, positions, event, log_offset)
        assert list(restored.snapshot()) == list(self.leases.snapshot())
        assert restored.unfinished_count == self.leases.unfinished_count
        assert positions == self.positions
        self.leases = restored

    # --- What must hold ---------------------------------------------------------------------------

    @invariant()
    def a_message_has_at_most_one_valid_handle(self) -> None:
        valid = [g.offset for g in self.given if self._judge(g) is HandleState.VALID]
        assert len(valid) == len(set(valid))

    @invariant()
    def a_handle_is_worth_what_the_model_says(self) -> None:
        for given in self.given:
            if given.is_spent:
                wanted = HandleState.STALE
            else:
                wanted = HandleState.VALID if self.now < given.until else HandleState.EXPIRED
            assert self._judge(given) is wanted

    @invariant()
    def nothing_is_lost(self) -> None:
        queue = self._queue()
        for offset in range(self.begun_at, queue.position):
            assert (offset in self.done) != (offset in queue.unfinished)

    @invariant()
    def the_committed_offset_passes_nothing_unfinished(self) -> None:
        committed = self.positions[QUEUE]
        queue = self._queue()
        assert committed == min(queue.unfinished, default=queue.position)
        assert all(o in self.done for o in range(self.begun_at, committed))

    @invariant()
    def memory_is_bounded(self) -> None:
        assert len(self._queue().unfinished) <= UNFINISHED_MAX
        assert self.leases.unfinished_count == len(self._queue().unfinished)

    # --- Inside -----------------------------------------------------------------------------------

    def _queue(self) -> QueueLeases:
        return self.leases.of_queue(GROUP, QUEUE) or QueueLeases(self.positions[QUEUE])

    def _write(self, event: History) -> bool:
        self.history.append(event)
        return fold(self.leases, self.positions, event, len(self.history))

    def _judge(self, given: Given) -> HandleState:
        return self._queue().judge(given.offset, given.fence, self.now)

    def _are_valid(self, chosen: list[Given]) -> bool:
        return all(self._judge(given) is HandleState.VALID for given in chosen)

    def _some_given(self, data: st.DataObject, count: int = 3) -> list[Given]:
        newest = self.given[-8:]
        return data.draw(
            st.lists(
                st.sampled_from(newest), min_size=1, max_size=count, unique_by=lambda g: g.offset
            )
        )

    def _spend(self, chosen: list[Given]) -> None:
        for given in chosen:
            given.is_spent = True

    def _check_handed_out(self, before: QueueLeases, offset: int, attempt: int) -> None:
        assert offset not in self.done
        known = before.unfinished.get(offset)
        assert attempt == (known.attempt if known else 0) + 1 <= ATTEMPTS_MAX
        assert known is None or known.due_at <= self.now
        if self.is_ordered:
            key = self.messages[offset]
            for earlier in self._queue().unfinished:
                if earlier < offset:
                    assert key is not None
                    assert self.messages[earlier] not in (key, None)


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(max_examples=250, stateful_step_count=50, deadline=None)
