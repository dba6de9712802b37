"""The feed's bookkeeping, by a clock that the test moves: lease, silence, candidates (rule 10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import inf
from pathlib import Path

import pytest

from eruca.contract.errors import ForeignReplicaError, StaleEpochError
from eruca.contract.replication import LineageRequest
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.master_lease import ANSWERS_MAX, LEASE_SECONDS
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.processors.replication.feed import Feed
from eruca_broker.processors.replication.fetches import Fetch, Run
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.connections.exchange import PostponedError
from support.clocks import ManualClock
from support.cold_files import ColdFiles, in_the_end
from support.message_stores import send
from support.stores import small_settings
from support.waiting import until

pytestmark = pytest.mark.anyio

MASTER, TWO, THREE = Member(1, "a"), Member(2, "b"), Member(3, "c")
BOTH = frozenset({MASTER, TWO})


class Term:
    """A master's term, and what its replicas say."""

    def __init__(self, store: MessageStore, clock: ManualClock, known: frozenset[Member]) -> None:
        self.store = store
        self.clock = clock
        store.role.follow()
        shown_offset = store.confirmed_offset
        self.begun = store.role.lead(EpochBegan(1, *MASTER, "10.0.0.1:10911", 0))
        self.feed = Feed(
            store, epoch=1, master=MASTER, known=known, clock=clock, shown_offset=shown_offset
        )

    def prove(self, member: Member) -> None:
        """Let an empty replica prove its lineage."""
        answer = self.feed.prove(
            LineageRequest(
                replica_id=member.replica_id,
                uid=member.uid,
                epoch=1,
                epochs=[],
                min_offset=0,
                end=0,
                segment_bytes=self.store.segment_bytes,
            )
        )
        assert answer.proved

    def fetch(self, member: Member, from_offset: int | None = None, answer: int = 0) -> Run:
        """Let a replica fetch, by default at the log's end, and publish what that confirms."""
        offset = self.store.log_max_offset if from_offset is None else from_offset
        fetch = Fetch(member, 1, offset, answer, 0.0, 1 << 20)
        self.feed.acknowledge(fetch)
        run = self.feed.run(fetch)
        self.feed.confirm()
        return run


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[MessageStore]:
    store = await MessageStore.open(tmp_path, small_settings(), clock)
    yield store
    await store.close()


@pytest.fixture
async def term(store: MessageStore, clock: ManualClock) -> AsyncIterator[Term]:
    """A term with one other member, which has everything."""
    term = Term(store, clock, BOTH)
    await until(lambda: store.durable_offset == store.log_max_offset > store.confirmed_offset)
    term.prove(TWO)
    yield term
    term.feed.close()


async def test_the_only_member_needs_no_lease(store: MessageStore, clock: ManualClock) -> None:
    term = Term(store, clock, frozenset({MASTER}))
    await term.begun

    assert term.feed.lease_until == inf
    term.feed.close()


async def test_the_lease_runs_from_the_answer_that_was_quoted(
    term: Term, clock: ManualClock
) -> None:
    assert term.feed.lease_until == -inf
    first = term.fetch(TWO)
    answered_at = clock.boottime()
    assert term.feed.lease_until == -inf, "the replica may never have received the answer"

    clock.advance(1)
    second = term.fetch(TWO, answer=first.number)
    assert term.feed.lease_until == answered_at + LEASE_SECONDS

    clock.advance(1)
    term.fetch(TWO, answer=first.number)
    assert term.feed.lease_until == answered_at + LEASE_SECONDS, "it was quoted before"
    clock.advance(1)
    term.fetch(TWO, answer=second.number)
    assert term.feed.lease_until == answered_at + 1 + LEASE_SECONDS, "whatever was sent since"
    for _ in range(ANSWERS_MAX):
        old = term.fetch(TWO)
    clock.advance(1)
    for _ in range(ANSWERS_MAX):
        term.fetch(TWO)
    term.fetch(TWO, answer=old.number)
    assert term.feed.lease_until == answered_at + 1 + LEASE_SECONDS, "it is forgotten"


async def test_the_lease_needs_every_member_and_one_that_is_asked_for(
    term: Term, clock: ManualClock
) -> None:
    number = term.fetch(TWO).number
    term.fetch(TWO, answer=number)
    until_two = term.feed.lease_until
    term.prove(THREE)
    clock.advance(1)
    number = term.fetch(THREE).number
    assert term.feed.lease_until == until_two, "a learner never becomes master"

    term.feed.asking(BOTH | {THREE})
    assert term.feed.lease_until == -inf
    term.fetch(THREE, answer=number)
    assert term.feed.lease_until == until_two


async def test_silence_counts_from_the_last_request_or_the_terms_beginning(
    term: Term, clock: ManualClock
) -> None:
    begun = clock.boottime()
    assert term.feed.silent_since(THREE) == begun
    clock.advance(2)
    with pytest.raises(ForeignReplicaError):
        term.fetch(THREE)
    assert term.feed.silent_since(THREE) == begun, "it has proved nothing"

    term.fetch(TWO)
    assert term.feed.silent_since(TWO) == clock.boottime() == term.feed.heard_at()[TWO]


async def test_a_replica_keeps_up_that_had_everything_at_its_last_request(
    term: Term, store: MessageStore, clock: ManualClock
) -> None:
    """Messages are written all the time, so it never has everything now."""
    term.prove(THREE)
    ends = []
    for _ in range(4):
        ends.append(store.log_max_offset)
        sending = asyncio.ensure_future(send(store, b"x"))
        await until(lambda: store.durable_offset > ends[-1])
        term.fetch(TWO)
        await sending
        clock.advance(0.4)
        term.fetch(THREE, ends[-1])

    assert not term.feed.copies.may_join(THREE)
    assert term.feed.keeping_up() == [], "it has quoted no answer, so the lease would be over"
    number = term.fetch(THREE, ends[-1]).number
    term.fetch(THREE, ends[-1], answer=number)
    assert term.feed.keeping_up() == [THREE]
    assert term.feed.behind_since(THREE) == pytest.approx(clock.boottime() - 0.4)
    clock.advance(1.1)
    assert term.feed.keeping_up() == []


async def test_a_member_that_has_left_is_no_newcomer_before_it_follows_again(
    term: Term, store: MessageStore, clock: ManualClock
) -> None:
    """It has had everything a moment ago, but it has left on purpose."""
    number = term.fetch(TWO).number
    number = term.fetch(TWO, answer=number).number
    assert store.confirmed_offset == store.log_max_offset
    clock.advance(0.1)
    term.feed.answered(frozenset({MASTER}))

    assert term.feed.keeping_up() == []
    clock.advance(0.1)
    term.fetch(TWO, answer=number)
    assert term.feed.keeping_up() == [TWO]


async def test_a_replica_that_has_just_been_admitted_does_not_keep_up_yet(term: Term) -> None:
    """Others would wait for it, however far behind it is."""
    term.fetch(TWO)
    term.prove(THREE)
    number = term.fetch(THREE, 0).number
    assert term.feed.keeping_up() == []
    term.fetch(THREE, 0, answer=number)
    assert term.feed.keeping_up() == []

    number = term.fetch(THREE).number
    term.fetch(THREE, answer=number)

    assert term.feed.keeping_up() == [THREE]


async def test_a_replica_that_is_waited_for_soon_has_everything_confirmed(
    term: Term, store: MessageStore
) -> None:
    """Rule 6: it is waited for before the arbiter is asked."""
    term.prove(THREE)
    term.fetch(TWO)
    before = store.confirmed_offset
    term.feed.asking(BOTH | {THREE})
    joining = asyncio.ensure_future(
        term.feed.have_everything(frozenset({THREE}), within_seconds=60)
    )
    sending = asyncio.ensure_future(send(store, b"x"))
    await until(lambda: store.durable_offset > before)
    term.fetch(TWO)
    assert store.confirmed_offset == before, "it is waited for"
    assert not joining.done()

    term.fetch(THREE, before)
    assert await joining
    term.feed.answered(BOTH | {THREE})
    assert not sending.done()
    term.fetch(THREE)
    await sending


async def test_a_replica_that_stays_behind_does_not_join(term: Term, store: MessageStore) -> None:
    term.prove(THREE)
    term.fetch(TWO)
    term.feed.asking(BOTH | {THREE})

    assert not await term.feed.have_everything(frozenset({THREE}), within_seconds=0)
    term.feed.answered(BOTH)
    assert term.feed.copies.waited_for == BOTH


async def test_nothing_is_confirmed_before_the_epoch_is(term: Term, store: MessageStore) -> None:
    """Records that a former master left are confirmed with the epoch, never before it."""
    term.fetch(TWO, 0)  # the first one after a proof has only what is visible
    run = term.fetch(TWO, 0)

    assert run.confirmed == store.confirmed_offset < store.log_max_offset
    assert b"".join(run.pieces) == b"".join(store.log.pieces(0, store.log_max_offset))
    assert not term.begun.done()
    assert term.fetch(TWO).confirmed == store.log_max_offset == store.confirmed_offset
    assert term.begun.done()


@pytest.mark.parametrize(("later", "told"), [(-1, 0), (0, 0), (1, 1)])
async def test_a_fetch_of_a_later_epoch_is_told_to_the_term(
    term: Term, later: int, told: int
) -> None:
    term.fetch(TWO)
    heard: list[int] = []
    term.feed.on_later_epoch = lambda: heard.append(term.feed.epoch)
    fetch = Fetch(TWO, term.feed.epoch + later, 0, 0, 0, 1 << 20)

    if later:
        with pytest.raises(StaleEpochError):
            term.feed.acknowledge(fetch)
    else:
        term.feed.acknowledge(fetch)

    assert len(heard) == told


async def test_a_term_that_is_over_confirms_nothing(term: Term, store: MessageStore) -> None:
    term.fetch(TWO)
    confirmed = store.confirmed_offset
    term.feed.close()

    sending = asyncio.ensure_future(send(store, b"x"))
    await until(lambda: store.durable_offset > confirmed)

    assert store.confirmed_offset == confirmed
    with pytest.raises(StaleEpochError):
        term.fetch(TWO)
    with pytest.raises(StaleEpochError):
        await term.feed.confirmed(0)
    store.role.follow()
    await asyncio.gather(sending, return_exceptions=True)


async def test_a_run_that_is_not_in_memory_is_read_first(
    term: Term, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ColdFiles(monkeypatch)
    with pytest.raises(PostponedError):
        term.fetch(TWO, 0)
    files.let_read()

    run = await in_the_end(lambda: term.fetch(TWO, 0))
    copied = b"".join(run.pieces)
    assert copied
    assert copied == b"".join(term.store.log.pieces(0, len(copied)))


async def test_a_fetch_whose_sequence_ends_while_its_run_is_read_gets_none(
    term: Term, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = Fetch(TWO, 1, 0, 0, 0.0, 1 << 20)
    term.feed.acknowledge(fetch)
    files = ColdFiles(monkeypatch)
    count = term.feed.sequence_count(fetch)
    with pytest.raises(PostponedError):
        term.feed.run(fetch, count)
    files.let_read()
    later = Fetch(TWO, 1, 0, 0, 0.0, 1 << 20)
    await in_the_end(lambda: term.feed.acknowledge(later))

    assert term.feed.run(fetch, count).pieces == []
    its_count = term.feed.sequence_count(later)
    run = await in_the_end(lambda: term.feed.run(later, its_count))
    copied = b"".join(run.pieces)
    assert copied
    assert copied == b"".join(term.store.log.pieces(0, len(copied)))


async def test_an_acknowledgement_of_what_left_memory_long_ago_reads_it_first(
    term: Term, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = store.log_max_offset
    sending = asyncio.ensure_future(send(store, b"x"))
    await until(lambda: store.durable_offset > early)
    term.fetch(TWO)
    await sending
    term.prove(THREE)
    files = ColdFiles(monkeypatch)
    fetch = Fetch(THREE, 1, early, 0, 0.0, 1 << 20)
    with pytest.raises(PostponedError):
        term.feed.acknowledge(fetch)
    assert dict(term.feed.copies.held)[THREE] == 0, "nothing is noted"
    files.let_read()

    await in_the_end(lambda: term.feed.acknowledge(fetch))

    assert dict(term.feed.copies.held)[THREE] == early
    assert (bool(files.reads), store.cold.on_loop_count) == (True, 0)


async def test_a_replica_that_is_forgotten_meanwhile_proves_itself_again(term: Term) -> None:
    fetch = Fetch(THREE, 1, 0, 0, 0.0, 1 << 20)
    assert term.feed.sequence_count(fetch) == -1
    with pytest.raises(ForeignReplicaError, match="any more"):
        term.feed.run(fetch, 0)
