"""Roles: who may become master, in which epoch, and when a master is none any more."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from math import inf
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eruca_broker.core.replication.broker_group import (
    BrokerGroup,
    Change,
    GroupChangeError,
    Member,
    founded,
)
from eruca_broker.core.replication.in_sync import Copies
from eruca_broker.core.replication.master_lease import LEASE_SECONDS
from eruca_broker.core.replication.roles import (
    BEHIND_SECONDS,
    ROLE,
    SILENCE_SECONDS,
    SKEW_SECONDS_MAX,
    Bar,
    Course,
    Outcome,
    Role,
    Standing,
    Turn,
    bar_of,
    course,
    founding_delay,
    handed_over,
    has_lease,
    have_all_lost_places,
    is_behind,
    is_lease_lost,
    late_members,
    outcome_of_change,
    outcome_of_term,
    rank_of,
    recovery_wait,
    restated,
    silent_members,
    succession_of,
    term_of,
    unclean_master,
)

ONE, TWO, THREE = Member(1, "a"), Member(2, "b"), Member(3, "c")
ALL = frozenset({ONE, TWO, THREE})
GROUP = BrokerGroup(4, ONE, ALL)


def standing(
    member: Member,
    last_epoch: int = 4,
    end: int = 100,
    **facts: Any,  # noqa: ANN401 - Standing's fields, of their types
) -> Standing:
    return Standing(member, last_epoch, end)._replace(**facts)


def test_a_role_ends_only_by_demotion() -> None:
    assert {turn for role, turn, after in ROLE.rows if after is Role.DEMOTED} == {
        Turn.SUPERSEDED,
        Turn.LEASE_LOST,
        Turn.DISK_FAILED,
        Turn.HANDED_OVER,
    }
    assert ROLE.after(Role.MASTER, Turn.TERM_WON) is None
    assert ROLE.after(Role.STANDBY, Turn.EPOCH_CONFIRMED) is None


# --- The row, and its consequence -----------------------------------------------------------------


def test_a_store_founds_the_group_that_the_arbiter_does_not_know() -> None:
    assert course(None, standing(ONE, last_epoch=0), None) is Course.FOUND


def test_a_store_with_epochs_does_not_found_the_group_again() -> None:
    """Rule 13: its epochs come from a row that the arbiter has lost."""
    assert course(None, standing(ONE, last_epoch=1), None) is Course.REFUSE


@pytest.mark.parametrize("term", [None, 4])
@pytest.mark.parametrize("me", [ONE, TWO])
def test_a_row_older_than_the_log_is_refused(me: Member, term: int | None) -> None:
    """Rule 13, for the master that the row names and for the others."""
    assert course(GROUP, standing(me, last_epoch=5), term) is Course.REFUSE
    assert bar_of(GROUP, standing(me, last_epoch=5)) is Bar.ARBITER_BEHIND


def test_a_row_older_than_another_log_is_known_by_it() -> None:
    """Rule 13, for a restarted master whose own log is no newer than the row."""
    assert course(GROUP, standing(ONE), None) is Course.TAKE_TERM
    row = Change(GROUP.epoch, 3)
    assert is_behind(row, [standing(TWO), standing(THREE, last_epoch=5)])
    assert not is_behind(row, [standing(TWO), standing(THREE, last_epoch=3)])


@pytest.mark.parametrize(
    ("known", "behind"), [((4, 3), False), ((4, 4), True), ((5, 1), True), ((3, 9), False)]
)
def test_a_row_older_than_one_that_a_replica_knows_is_known_by_it(
    known: tuple[int, int], *, behind: bool
) -> None:
    """Rule 13, within one epoch: the arbiter was restored from a copy."""
    assert is_behind(Change(4, 3), [standing(TWO, known=Change(*known))]) is behind


def test_a_master_states_its_set_again_in_the_next_epoch() -> None:
    assert restated(ONE, 4, frozenset({ONE, TWO})) == BrokerGroup(5, ONE, frozenset({ONE, TWO}))


def test_a_row_that_names_another_master_is_followed() -> None:
    assert course(GROUP, standing(TWO), None) is Course.FOLLOW
    assert course(GROUP, standing(ONE._replace(uid="new")), None) is Course.FOLLOW


@pytest.mark.parametrize("term", [None, 3])
def test_a_restarted_or_appointed_master_takes_the_next_term(term: int | None) -> None:
    """Rule 3: a process leads only a term that it has asked for itself."""
    assert course(GROUP, standing(ONE), term) is Course.TAKE_TERM
    assert term_of(GROUP, standing(ONE)) == BrokerGroup(5, ONE, ALL)


def test_a_process_leads_the_term_that_it_has_asked_for() -> None:
    assert course(GROUP, standing(ONE, last_epoch=3), 4) is Course.LEAD


# --- Terms ----------------------------------------------------------------------------------------


def test_a_store_outside_the_in_sync_set_takes_no_term() -> None:
    group = replace(GROUP, in_sync=frozenset({ONE, TWO}))
    assert bar_of(group, standing(THREE)) is Bar.NOT_IN_SYNC
    assert bar_of(group, standing(TWO._replace(uid="new"))) is Bar.NOT_IN_SYNC
    with pytest.raises(GroupChangeError):
        term_of(group, standing(THREE))


@pytest.mark.parametrize(
    ("facts", "bar"),
    [
        ({"is_damaged": True}, Bar.DAMAGED),  # rule 11
        ({}, None),
    ],
)
def test_damage_bars_a_member(facts: dict[str, Any], bar: Bar | None) -> None:
    assert bar_of(GROUP, standing(TWO, **facts)) is bar


def test_candidates_go_by_their_epoch_then_end_then_priority_then_number() -> None:
    group = BrokerGroup(4, ONE, frozenset(Member(number, "x") for number in range(2, 7)) | {ONE})
    ordered = [
        standing(Member(6, "x"), 4, 5),
        standing(Member(5, "x"), 3, 900, priority=1),
        standing(Member(2, "x"), 3, 900),
        standing(Member(3, "x"), 3, 900),
        standing(Member(4, "x"), 3, 100, priority=9),
    ]
    for shuffled in permutations(ordered):
        assert [rank_of(group, me, shuffled) for me in ordered] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("skew", [SKEW_SECONDS_MAX + 0.1, -SKEW_SECONDS_MAX - 0.1])
def test_a_candidate_whose_clock_differs_goes_last_and_is_not_barred(skew: float) -> None:
    """The clock that is wrong may be the lost master's: then every other one differs from it."""
    longer, shorter = standing(TWO, end=9, skew_seconds=skew), standing(THREE, end=5)
    assert rank_of(GROUP, longer, [shorter]) == 1
    assert rank_of(GROUP, shorter, [longer]) == 0

    both_differ = shorter._replace(skew_seconds=skew)

    assert rank_of(GROUP, longer, [both_differ]) == 0
    assert rank_of(GROUP, both_differ, [longer]) == 1
    assert bar_of(GROUP, longer) is None
    just_right = standing(TWO, end=9, skew_seconds=SKEW_SECONDS_MAX)
    assert rank_of(GROUP, just_right, [shorter]) == 0


def test_replicas_that_may_not_become_master_take_no_turn() -> None:
    me = standing(TWO, end=1)
    longer = [
        standing(ONE, end=9),  # the master, which is silent
        standing(THREE, end=9, is_damaged=True),
        standing(Member(4, "d"), end=9),  # a learner
    ]
    assert rank_of(GROUP, me, [me, *longer]) == 0


@pytest.mark.parametrize(
    ("in_sync", "min_in_sync", "is_leaving", "expected"),
    [
        (ALL, 1, False, {TWO, THREE}),  # the successor waits for nobody who still changes its role
        (ALL, 2, False, {TWO, THREE}),
        (ALL, 3, False, ALL),  # or it would refuse sends
        ({ONE, TWO}, 1, False, {ONE, TWO}),  # or there would be one copy of what is sent
        (ALL, 3, True, {TWO, THREE}),
        ({ONE, TWO}, 1, True, {TWO}),
    ],
)
def test_a_master_that_hands_over_leaves_the_set_if_enough_copies_are_left(
    in_sync: set[Member], min_in_sync: int, is_leaving: bool, expected: set[Member]
) -> None:
    group = replace(GROUP, in_sync=frozenset(in_sync))

    after = handed_over(group, TWO, min_in_sync=min_in_sync, is_leaving=is_leaving)

    assert after == BrokerGroup(5, TWO, frozenset(expected))


def test_a_successor_does_not_wait_for_the_silent_master() -> None:
    """Rule 6: the members that are left hold everything confirmed."""
    assert succession_of(GROUP, standing(TWO)) == BrokerGroup(5, TWO, frozenset({TWO, THREE}))
    with pytest.raises(GroupChangeError):
        succession_of(replace(GROUP, in_sync=frozenset({ONE, THREE})), standing(TWO))


def test_an_unclean_term_that_never_began_is_repeated_unclean() -> None:
    forced = GROUP.forced(TWO)

    assert term_of(forced, standing(TWO, last_epoch=4)) == replace(
        BrokerGroup(6, TWO, frozenset({TWO})), is_unclean=True
    )
    assert not term_of(forced, standing(TWO, last_epoch=5)).is_unclean


def test_an_empty_store_lets_one_with_messages_found_the_group() -> None:
    assert founding_delay(standing(THREE), is_empty=False) == 0
    delays = [founding_delay(standing(member), is_empty=True) for member in (ONE, TWO, THREE)]
    assert 0 < delays[0] < delays[1] < delays[2]


# --- Rule 8 ---------------------------------------------------------------------------------------


def test_a_set_whose_stores_may_all_have_lost_records_has_lost_its_places() -> None:
    group = BrokerGroup(4, ONE, frozenset({ONE, TWO}))
    one = standing(Member(1, "A"), former_uids=("later", "a"))
    two = standing(Member(2, "B"), former_uids=("b",))
    assert have_all_lost_places(group, [one, two, standing(THREE)])


@pytest.mark.parametrize(
    "two",
    [
        [],  # it does not report, and may have everything
        [standing(TWO)],
        [standing(Member(2, "B"))],  # another disk: the former one may come back
        [standing(Member(2, "B"), former_uids=("other",))],
    ],
)
def test_a_member_that_may_have_everything_is_waited_for(two: list[Standing]) -> None:
    """Rule 8: an unclean term is taken only if no clean one is possible."""
    group = BrokerGroup(4, ONE, frozenset({ONE, TWO}))
    assert not have_all_lost_places(group, [standing(Member(1, "A"), former_uids=("a",)), *two])


def test_the_longest_log_of_all_that_report_becomes_the_unclean_master() -> None:
    """Rule 8: also that of a replica which was never in the set."""
    standings = [standing(ONE, 3, 900), standing(TWO, 4, 10), standing(THREE, 4, 20)]
    for shuffled in permutations(standings):
        assert unclean_master(shuffled) == THREE


def test_the_only_replica_waits_for_nobody() -> None:
    assert recovery_wait({1}, standing(ONE), 30) == 0
    assert recovery_wait({1, 2}, standing(ONE), 30) == 30


# --- The master's set -----------------------------------------------------------------------------


def test_a_member_is_removed_once_it_has_been_silent_for_too_long() -> None:
    """Rule 6: nothing is confirmed without it before."""
    copies = Copies(4, ONE, ALL)
    heard = {TWO: 100.0, THREE: 103.0}

    def silent(now: float, listening_since: float = 90.0) -> frozenset[Member]:
        return silent_members(copies, heard, now, listening_since=listening_since)

    assert silent(100 + SILENCE_SECONDS) == frozenset()
    assert silent(100.1 + SILENCE_SECONDS) == {TWO}
    assert silent(200) == {TWO, THREE}
    assert silent(200, listening_since=199) == frozenset()  # this process was stopped meanwhile


def test_a_member_that_was_never_heard_counts_from_the_beginning_of_the_term() -> None:
    copies = Copies(4, ONE, frozenset({ONE, TWO}))
    assert silent_members(copies, {}, SILENCE_SECONDS, listening_since=0) == frozenset()
    assert silent_members(copies, {}, SILENCE_SECONDS + 0.1, listening_since=0) == {TWO}


def test_a_member_is_removed_that_is_heard_and_does_not_catch_up() -> None:
    """Rule 6: it may refuse a record for ever, and nothing would be confirmed again."""
    copies = Copies(4, ONE, ALL)
    caught_up = {TWO: 100.0, THREE: 108.0, Member(9, "a learner"): 0.0}

    def late(now: float, listening_since: float = 90.0) -> frozenset[Member]:
        return late_members(copies, caught_up, now, listening_since=listening_since)

    assert late(100 + BEHIND_SECONDS) == frozenset()
    assert late(100.1 + BEHIND_SECONDS) == {TWO}
    assert late(200) == {TWO, THREE}
    assert late(200, listening_since=199) == frozenset()  # this process was stopped meanwhile


# --- What became of a request ---------------------------------------------------------------------


def test_a_lost_answer_is_settled_by_the_row_alone() -> None:
    asked = GROUP.next_term(TWO)
    assert outcome_of_term(asked, GROUP, has_moved=False, is_ours=False) is Outcome.REPEAT
    assert outcome_of_term(asked, asked, has_moved=True, is_ours=True) is Outcome.WON
    # An earlier process of the same store has asked for the same.
    assert outcome_of_term(asked, asked, has_moved=True, is_ours=False) is Outcome.LOST
    other = GROUP.next_term(THREE)
    assert outcome_of_term(asked, other, has_moved=True, is_ours=False) is Outcome.LOST
    # This process has asked for both: in a hand-over that was interrupted, and then for itself.
    assert outcome_of_term(asked, other, has_moved=True, is_ours=True) is Outcome.LOST


def test_a_change_that_lost_adopts_the_row_of_its_epoch_and_yields_to_a_later_one() -> None:
    """Rules 12 and 13."""
    smaller = GROUP.without(ONE, THREE)
    assert outcome_of_change(4, GROUP, has_moved=False) is Outcome.REPEAT
    assert outcome_of_change(4, smaller, has_moved=True) is Outcome.WON
    assert outcome_of_change(4, GROUP.next_term(TWO), has_moved=True) is Outcome.SUPERSEDED
    assert outcome_of_change(5, GROUP, has_moved=True) is Outcome.ARBITER_BEHIND


def test_a_master_without_lease_is_not_sure_and_then_steps_down() -> None:
    """Rules 10 and 12; the only member of a set needs no lease."""
    until = 50.0
    assert has_lease(until, 49.9)
    assert not has_lease(until, 50.0)
    assert not is_lease_lost(until, 50 + LEASE_SECONDS)
    assert is_lease_lost(until, 50.1 + LEASE_SECONDS)
    assert has_lease(inf, 10.0**9)
    assert not is_lease_lost(inf, 10.0**9)


# --- All of it together ---------------------------------------------------------------------------


class Elections(RuleBasedStateMachine):
    """Replicas that restart, propose themselves and appoint others, before one arbiter.

    Requests reach the arbiter late, or after the process that sent them has died.
    """

    def __init__(self) -> None:
        super().__init__()
        self.row: BrokerGroup | None = None
        self.version = 0
        self.by: tuple[int, int] | None = None  # replica and run that wrote the row
        self.runs = {1: 0, 2: 0, 3: 0}
        self.terms: dict[int, int | None] = dict.fromkeys(self.runs)
        self.standings = {
            number: Standing(Member(number, f"u{number}"), 0, 0) for number in self.runs
        }
        self.seen: dict[int, tuple[int, BrokerGroup | None]] = {}
        self.asked: list[tuple[int, int, int, BrokerGroup]] = []  # replica, run, version, row
        self.leaders: dict[int, tuple[int, int]] = {}  # epoch → replica and run
        self.before: BrokerGroup | None = None

    @initialize()
    def founding(self) -> None:
        self.row, self.version = founded(self.standings[1].member), 1

    @rule(number=st.integers(1, 3))
    def read(self, number: int) -> None:
        self.seen[number] = (self.version, self.row)

    @rule(number=st.integers(1, 3), is_promise_over=st.booleans())
    def act(self, number: int, *, is_promise_over: bool) -> None:
        """Ask for a term, or lead the one that was won; each by the row that was read last."""
        version, row = self.seen.get(number, (0, None))
        if row is None:
            return
        me = self.standings[number]
        match course(row, me, self.terms[number]):
            case Course.LEAD:
                self.lead(number, row)
            case Course.TAKE_TERM:
                self.asked.append((number, self.runs[number], version, term_of(row, me)))
            case Course.FOLLOW if is_promise_over and bar_of(row, me) is None:
                self.asked.append((number, self.runs[number], version, succession_of(row, me)))
            case _:
                pass

    def lead(self, number: int, row: BrokerGroup) -> None:
        leader = (number, self.runs[number])
        assert self.leaders.setdefault(row.epoch, leader) == leader, "two processes led one epoch"
        me = self.standings[number]
        self.standings[number] = me._replace(last_epoch=row.epoch, end=me.end + 1)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        """Let any request reach the arbiter, even if its sender has died since."""
        number, run, version, asked = self.asked.pop(
            data.draw(st.integers(0, len(self.asked) - 1), "request")
        )
        has_moved = version != self.version
        if not has_moved:
            self.row, self.version, self.by = asked, self.version + 1, (number, run)
        assert self.row is not None
        is_ours = self.by == (number, run)
        outcome = outcome_of_term(asked, self.row, has_moved=True, is_ours=is_ours)
        if outcome is Outcome.WON and run == self.runs[number]:
            self.terms[number] = asked.epoch
            self.seen[number] = (self.version, self.row)

    @rule(number=st.integers(1, 3))
    def restart(self, number: int) -> None:
        self.runs[number] += 1
        self.terms[number] = None
        self.seen.pop(number, None)

    @rule(number=st.integers(1, 3), other=st.integers(1, 3))
    def join(self, number: int, other: int) -> None:
        """The master adds a member, by the present row."""
        if self.row is not None and self.row.master == self.standings[number].member:
            self.row = self.row.with_member(self.row.master, self.standings[other].member)
            self.version, self.by = self.version + 1, (number, self.runs[number])

    @rule(number=st.integers(1, 3), is_leaving=st.booleans())
    def appoint(self, number: int, *, is_leaving: bool) -> None:
        """The master hands over to a member, by the present row."""
        if self.row is not None:
            member = self.standings[number].member
            if member in self.row.in_sync and member != self.row.master:
                self.row = handed_over(self.row, member, min_in_sync=1, is_leaving=is_leaving)
                self.version, self.by = self.version + 1, (0, 0)

    @invariant()
    def the_epoch_never_falls_and_names_one_master(self) -> None:
        before, row = self.before, self.row
        if before is not None and row is not None:
            assert row.epoch >= before.epoch
            assert row.master == before.master or row.epoch > before.epoch
            assert row.master in before.in_sync, "a store outside the set has become master"
        self.before = row


TestElections = Elections.TestCase
TestElections.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
