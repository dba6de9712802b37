"""Transactions of a real store beside a model, with kills, power cuts, full disks and retention.

The model is :class:`support.transaction_model.TransactionModel`, a fold over the records of the
log. Whatever happens, in whatever order: a committed message is there once, a rolled-back one
never, each transaction is decided once, checks are granted in turn, each answer stays
true, and what is not over is never lost. A RocketMQ broker would see the same ones pending.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from eruca.contract.errors import (
    AlreadyDecidedError,
    CheckOutOfTurnError,
    DiskFullError,
    NotReadyError,
    TransactionNotFoundError,
)
from eruca.contract.messages import Body, NewMessage
from eruca.contract.records import Record, decode_record
from eruca.contract.transaction_events import Decider, Outcome
from eruca.contract.transactions import CheckRequest, Decide, ExpireRequest, NewTransaction
from eruca_broker.core.state.topic_events import TopicPut
from eruca_broker.store.settings import FlushMode
from support.clocks import ManualClock
from support.limits import file_size_limit
from support.log_model import read_log
from support.stores import (
    STORE_HOST,
    abandon,
    batch,
    delete_oldest_segments,
    scratch_directory,
    small_settings,
)
from support.torn_logs import cut_log, delete_projections
from support.transaction_model import TransactionModel
from support.transaction_stores import CHECKER, GROUP, TOPIC, TransactionStore

Result = TypeVar("Result")
OTHER_TOPIC = "noise"
SEGMENT_SIZE = 16 * 1024
REFUSALS = (
    AlreadyDecidedError,
    CheckOutOfTurnError,
    DiskFullError,
    NotReadyError,
    TransactionNotFoundError,
)

projections = st.sets(st.sampled_from(["consumequeue", "index", "config", "checkpoint"]))


@dataclass(frozen=True)
class Step:
    """Something a client does about the transaction of a number."""

    number: int
    what: str
    by: Decider = "producer"
    size: int = 1
    is_delayed: bool = False


numbers = st.integers(0, 11)
steps = st.one_of(
    st.builds(
        Step,
        numbers,
        st.just("begin"),
        size=st.sampled_from([1, 300, 3_000]),
        is_delayed=st.booleans(),
    ),
    st.builds(
        Step,
        numbers,
        st.sampled_from(["commit", "rollback"]),
        st.sampled_from(["producer", "check", "operator"]),
    ),
    st.builds(Step, numbers, st.sampled_from(["check", "check", "expire"])),
)
some_steps = st.lists(steps, min_size=1, max_size=8)


class TransactionsMachine(RuleBasedStateMachine):
    """One store directory, whatever happens to it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.root = scratch_directory()
        self.directory = self.root / "store"
        self.clock = ManualClock()
        self.records: dict[int, Record] = {}  # all that were ever in the log, by their offsets
        self.told: list[tuple[str, str, int]] = []  # id, answer, visible offset then
        self.sizes: dict[str, tuple[int, bool]] = {}  # of each body, and whether it is delayed
        self.generation = 0  # of the numbers: what the log has forgotten gets another id
        self.is_open = False

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(work)

    @initialize(is_sync=st.booleans())
    def make(self, is_sync: bool) -> None:
        self.settings = small_settings(
            flush_mode=FlushMode.SYNC if is_sync else FlushMode.ASYNC, segment_bytes=SEGMENT_SIZE
        )
        self.open()
        self.run(self.put_topic())
        self.learn()

    async def put_topic(self) -> None:
        for topic in (TOPIC, OTHER_TOPIC):
            await self.store.change(TopicPut(topic, 2, 2, "rw"))
        await self.store.upkeep.flush()

    def open(self) -> None:
        self.broker = self.run(TransactionStore.open(self.directory, self.settings, self.clock))
        self.store, self.transactions = self.broker.store, self.broker.transactions
        self.is_open = True
        self.learn()

    # --- What happens -----------------------------------------------------------------------------

    @rule(some=some_steps)
    def act_at_once(self, some: list[Step]) -> None:
        """Several clients ask in one turn of the loop."""
        self.run(self.act(some))
        self.learn()

    @rule(some=some_steps)
    def act_in_turn(self, some: list[Step]) -> None:
        for step in some:
            self.run(self.act([step]))
        self.learn()

    async def act(self, some: list[Step]) -> None:
        outcomes = await asyncio.gather(*map(self.started, some), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, REFUSALS):
                raise outcome

    def started(self, step: Step) -> asyncio.Future[None]:
        """Begin a step, and note its answer at the end."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        unique_id = self.id_of(step.number)

        def settle(outcome: object) -> None:
            if isinstance(outcome, AlreadyDecidedError):
                self.note(unique_id, f"{outcome.decision['outcome']} by {outcome.decision['by']}")
            elif not isinstance(outcome, Exception):
                said = getattr(outcome, "outcome", None)
                by = getattr(outcome, "by", None)
                self.note(unique_id, f"{said} by {by}" if said else "begun")
            if not future.done():
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    future.set_result(None)

        try:
            self.start(step, unique_id, settle)
        except REFUSALS as error:
            settle(error)
        return future

    def start(self, step: Step, unique_id: str, settle: Callable[[object], None]) -> None:
        live = self.store.state.transactions.get(unique_id)
        checks = live.checks if live else 0
        match step.what:
            case "begin":
                self.transactions.begin(self.new(unique_id, step), STORE_HOST, settle)
            case "check":
                request = CheckRequest(number=checks + 1, checker=CHECKER)
                self.transactions.check(unique_id, request, settle)
            case "expire":
                self.transactions.expire(
                    unique_id, ExpireRequest(checks=checks, checker=CHECKER), settle
                )
            case _:
                outcome: Outcome = "commit" if step.what == "commit" else "rollback"
                decide = Decide(producer_group=GROUP, by=step.by, reason="r")
                self.transactions.decide(unique_id, outcome, decide, settle)

    def new(self, unique_id: str, step: Step) -> NewTransaction:
        # A caller that begins again does so with the same message.
        size, is_delayed = self.sizes.setdefault(unique_id, (step.size, step.is_delayed))
        return NewTransaction(
            topic=TOPIC,
            producer_group=GROUP,
            queue_id=step.number % 2,
            message=NewMessage(
                body=Body(text=f"{unique_id}|" + "." * size),
                message_id=unique_id,
                delay_seconds=1_000 if is_delayed else None,
            ),
        )

    def note(self, unique_id: str, what: str) -> None:
        self.told.append((unique_id, what, self.store.visible_offset))

    def id_of(self, number: int) -> str:
        """Return the id that clients use now; the log never forgets one that is in use."""
        return f"t{number}.{self.generation}"

    @rule(size=st.integers(1_000, 15_000))
    def others_send(self, size: int) -> None:
        """Fill the segments: what is not over is soon in an old one."""
        self.run(self.send_other(size))
        self.learn()

    async def send_other(self, size: int) -> None:
        await self.store.append(batch(OTHER_TOPIC, 0, [bytes(size)]))

    @rule()
    def flush(self) -> None:
        self.run(self.store.upkeep.flush())

    @rule()
    def checkpoint(self) -> None:
        self.run(self.store.upkeep.checkpoint())

    @rule(limit=st.integers(0, SEGMENT_SIZE), some=some_steps)
    def act_on_a_full_disk(self, limit: int, some: list[Step]) -> None:
        """Act on a full disk; an unwritten action has not happened and can be retried."""
        with file_size_limit(limit), suppress(DiskFullError):
            self.run(self.act(some))
        self.run(self.store.upkeep.probe_disk())
        self.run(self.settle())
        self.learn()
        assert self.store.refusal is None
        assert len(self.transactions.turns) == 0

    async def settle(self) -> None:
        while self.store.visible_offset < self.store.log_max_offset:
            await self.store.upkeep.flush()
            await asyncio.sleep(0)

    @rule(count=st.integers(1, 3), some=st.lists(steps, max_size=5))
    def delete_the_oldest_segments(self, count: int, some: list[Step]) -> None:
        """Carry forward what is not over, while clients go on; then the segments can go.

        No precondition says that there are any: after a kill that depends on how fast flushes are.
        """
        ends = self.store.retention.segment_ends()
        if len(ends) == 1:
            return
        last = ends[min(count, len(ends) - 1) - 1]
        self.run(self.carry_amid(last, some))
        self.learn()
        oldest = self.store.state.transactions.oldest_offset()
        assert oldest is None or oldest >= last
        self.delete_up_to(count)
        decided = self.model().decided_at.values()
        if any(offset < self.store.log_min_offset for offset in decided):
            self.generation += 1

    async def carry_amid(self, last: int, some: list[Step]) -> None:
        acting = asyncio.ensure_future(self.act(some))
        await asyncio.sleep(0)
        await self.broker.carrier.carry_forward(last)
        await acting

    @rule()
    def retention_keeps_what_is_not_over(self) -> None:
        first = self.store.log_min_offset
        self.delete_up_to(10)
        oldest = self.store.state.transactions.oldest_offset()
        assert oldest is None or oldest >= self.store.log_min_offset
        if self.store.log_min_offset > first:
            self.generation += 1

    @rule(deleted=projections)
    def stop_and_start(self, deleted: set[str]) -> None:
        self.is_open = False
        self.run(self.store.close())
        delete_projections(self.directory, deleted)
        self.open()

    @rule(turns=st.integers(0, 3), some=some_steps, deleted=projections)
    def kill_amid_work(self, turns: int, some: list[Step], deleted: set[str]) -> None:
        self.run(self.abandon_amid(turns, some))
        delete_projections(self.directory, deleted)
        self.open()

    @rule(turns=st.integers(0, 3), part=st.floats(0, 1), some=some_steps)
    def cut_power_amid_work(self, turns: int, part: float, some: list[Step]) -> None:
        """Lose what was not flushed from somewhere on, also within a record or a group of them."""
        self.run(self.abandon_amid(turns, some))
        flushed, end = self.store.flushed_offset, self.store.log_max_offset
        cut_log(self.directory, flushed + round(part * (end - flushed)))
        shutil.rmtree(self.directory / "consumequeue")
        self.records = {at: r for at, r in self.records.items() if at + r.size <= flushed}
        self.told = [entry for entry in self.told if entry[2] <= flushed]
        self.open()

    async def abandon_amid(self, turns: int, some: list[Step]) -> None:
        acting = asyncio.ensure_future(self.act(some))
        for _ in range(turns):
            await asyncio.sleep(0)
        self.is_open = False
        await abandon(self.store)
        acting.cancel()
        await asyncio.gather(acting, return_exceptions=True)

    # --- What must hold ---------------------------------------------------------------------------

    @invariant()
    def each_is_in_one_state_and_seen_if_it_was_committed(self) -> None:
        if not self.is_open:
            return
        model = self.model()
        model.check()
        live = {one.transaction_id: one for one in self.store.state.transactions}
        assert {i: t.checks for i, t in live.items() if t.parked_at is None} == model.pending
        assert {i: t.checks for i, t in live.items() if t.parked_at is not None} == model.parked
        assert self.store.state.transactions.parked_count == len(model.parked)
        assert len(self.transactions.turns) == 0
        for transaction in live.values():
            message, _ = self.broker.log.message_of(transaction)
            assert decode_record(message).body.startswith(
                b"%s|" % transaction.transaction_id.encode()
            )
        for unique_id, what, _ in self.told:
            self.check_told(model, unique_id, what)

    def check_told(self, model: TransactionModel, unique_id: str, what: str) -> None:
        """Check that each answer still holds, or has become what may come of it."""
        assert unique_id in model.begun
        if what == "rollback by limit":
            decided = model.decided.get(unique_id, {"was_parked": True, "by": "operator"})
            assert unique_id in model.parked or decided["was_parked"]
            assert decided["by"] == "operator"
        elif what != "begun":
            decided = model.decided[unique_id]
            assert what == f"{decided['outcome']} by {decided['by']}"

    @rule(number=numbers)
    def look(self, number: int) -> None:
        model, unique_id = self.model(), self.id_of(number)
        if unique_id not in model.begun:
            with suppress(TransactionNotFoundError):
                self.broker.views.get(unique_id)
                raise AssertionError("what was never begun is shown")
            return
        shown = self.broker.views.get(unique_id)
        if unique_id in model.pending:
            assert shown.state == "pending"
        elif unique_id in model.parked:
            assert (shown.state, shown.decision and shown.decision.by) == ("parked", "limit")
        else:
            outcome = model.decided[unique_id]["outcome"]
            assert shown.state == {"commit": "committed", "rollback": "rolled_back"}[outcome]
            assert (shown.committed is not None) == (outcome == "commit")
        if shown.message is None:  # of what is over, the half message goes before the decision
            assert unique_id in model.decided
            assert "begun" not in {entry.event for entry in shown.history}
        else:
            assert shown.message["body"]["text"].startswith(f"{unique_id}|")

    def teardown(self) -> None:
        if self.is_open:
            self.run(self.store.close())
        self.runner.close()
        shutil.rmtree(self.root)

    # --- How it is done ---------------------------------------------------------------------------

    def model(self) -> TransactionModel:
        return TransactionModel(r for r in self.records.values() if r.topic != OTHER_TOPIC)

    def learn(self) -> None:
        """Read what is new in the log's files."""
        last = max(self.records, default=None)
        start = 0 if last is None else last + self.records[last].size
        for record in read_log(self.directory, start):
            self.records[record.log_offset] = record

    def delete_up_to(self, count: int) -> None:
        self.run(delete_oldest_segments(self.store, count))


TestTransactionsMachine = TransactionsMachine.TestCase
TestTransactionsMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
