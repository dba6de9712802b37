"""The confirmed offset, for acknowledgements and answers in any order."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.in_sync import (
    Copies,
    ImpossibleOffsetError,
    StaleEpochError,
    UnprovedReplicaError,
)

MASTER, TWO, THREE = Member(1, "a"), Member(2, "b"), Member(3, "c")
others = st.sampled_from([TWO, THREE])


class CopiesMachine(RuleBasedStateMachine):
    """A master whose replicas prove their lineage, acknowledge, join, leave and fall silent."""

    def __init__(self) -> None:
        super().__init__()
        self.copies = Copies(3, MASTER, frozenset({MASTER, TWO}))
        self.row = self.copies.known  # as the arbiter has it
        self.end = self.durable = 0
        self.truth: dict[Member, int] = {MASTER: 0}  # what each has said
        self.was_confirmed = 0

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        self.end += count

    @rule()
    def flush(self) -> None:
        self.durable = self.truth[MASTER] = self.end
        self.copies = self.copies.advanced(self.durable)

    @rule(member=others)
    def prove(self, member: Member) -> None:
        self.copies = self.copies.proved(member)
        self.truth.setdefault(member, 0)

    @rule(member=others, place=st.integers(0, 20))
    def acknowledge(self, member: Member, place: int) -> None:
        try:
            self.copies = self.copies.acknowledged(
                member, epoch=3, log_offset=place, written_end=self.end
            )
        except ImpossibleOffsetError:
            assert place > self.end
        except UnprovedReplicaError:
            assert member not in self.truth
        else:
            assert place <= self.end
            self.truth[member] = max(self.truth[member], place)
        self.copies = self.copies.advanced(self.durable)

    @precondition(lambda self: self.copies.asked is None)
    @rule(members=st.sets(others))
    def ask(self, members: set[Member]) -> None:
        joining = {member for member in members if self.copies.may_join(member)}
        staying = members & self.copies.known
        self.copies = self.copies.asking(frozenset({MASTER, *joining, *staying}))

    @precondition(lambda self: self.copies.asked is not None)
    @rule(is_granted=st.booleans())
    def answer(self, is_granted: bool) -> None:
        assert self.copies.asked is not None
        self.row = self.copies.asked if is_granted else self.row
        self.copies = self.copies.answered(self.row).advanced(self.durable)

    @invariant()
    def nothing_is_confirmed_that_a_possible_master_may_lack(self) -> None:
        assert self.copies.confirmed <= self.durable
        assert self.copies.confirmed >= self.was_confirmed, "it went backwards"
        if self.copies.confirmed > self.was_confirmed:
            for member in self.row | self.copies.waited_for:
                assert self.truth.get(member, 0) >= self.copies.confirmed, member
        self.was_confirmed = self.copies.confirmed


TestCopies = CopiesMachine.TestCase


def test_another_epochs_acknowledgement_is_about_another_log() -> None:
    copies = Copies(3, MASTER, frozenset({MASTER, TWO})).proved(TWO)

    for epoch in (2, 4):
        with pytest.raises(StaleEpochError, match=f"expected epoch 3, found {epoch}"):
            copies.acknowledged(TWO, epoch=epoch, log_offset=1, written_end=9)


def test_a_group_of_one_confirms_what_is_durable() -> None:
    copies = Copies(1, MASTER, frozenset({MASTER}))

    assert copies.advanced(7).confirmed == 7
    assert copies.count_at(7, durable_end=7) == 1


def test_copies_are_counted_whether_or_not_they_are_in_the_set() -> None:
    copies = Copies(1, MASTER, frozenset({MASTER, TWO}))
    for member, place in ((TWO, 5), (THREE, 8)):
        copies = copies.proved(member).acknowledged(
            member, epoch=1, log_offset=place, written_end=9
        )

    assert [copies.count_at(offset, durable_end=9) for offset in (5, 8, 9)] == [3, 2, 1]


def test_a_replica_may_join_once_it_holds_everything_confirmed() -> None:
    copies = Copies(1, MASTER, frozenset({MASTER})).advanced(5)
    assert not copies.may_join(TWO)
    copies = copies.proved(TWO)
    assert not copies.may_join(TWO)
    copies = copies.acknowledged(TWO, epoch=1, log_offset=5, written_end=9)
    assert copies.may_join(TWO)

    asking = copies.asking(frozenset({MASTER, TWO}))

    assert asking.may_join(TWO)  # so the arbiter is asked
    assert asking.advanced(9).confirmed == 5  # and waited for already
    with pytest.raises(AssertionError, match="one change"):
        asking.asking(frozenset({MASTER}))


def test_a_forgotten_replica_must_prove_its_lineage_again() -> None:
    copies = Copies(3, MASTER, frozenset({MASTER, TWO})).proved(TWO).proved(THREE).forgotten(THREE)

    with pytest.raises(UnprovedReplicaError):
        copies.acknowledged(THREE, epoch=3, log_offset=0, written_end=5)
    with pytest.raises(AssertionError, match="confirmed would go back"):
        copies.forgotten(TWO)
