"""The arbiter's row, and who may change what in it."""

from __future__ import annotations

import pytest

from eruca_broker.core.replication.broker_group import (
    BrokerGroup,
    GroupChangeError,
    Member,
    founded,
)

ONE, TWO, THREE = Member(1, "a"), Member(2, "b"), Member(3, "c")
PAIR = BrokerGroup(4, ONE, frozenset({ONE, TWO}))


def test_a_group_begins_with_its_first_store() -> None:
    assert founded(ONE) == BrokerGroup(1, ONE, frozenset({ONE}))


@pytest.mark.parametrize("member", [ONE, TWO], ids=["the same master", "another member"])
def test_each_term_is_a_new_epoch(member: Member) -> None:
    assert PAIR.next_term(member) == BrokerGroup(5, member, PAIR.in_sync)


@pytest.mark.parametrize("member", [THREE, Member(2, "wiped")], ids=["no member", "another store"])
def test_nobody_outside_the_in_sync_set_becomes_master(member: Member) -> None:
    with pytest.raises(GroupChangeError, match="may lack confirmed messages"):
        PAIR.next_term(member)


def test_the_master_alone_changes_the_set_and_never_removes_itself() -> None:
    assert PAIR.with_member(ONE, THREE).in_sync == {ONE, TWO, THREE}
    assert PAIR.without(ONE, TWO) == BrokerGroup(4, ONE, frozenset({ONE}))
    for change in (PAIR.with_member, PAIR.without):
        with pytest.raises(GroupChangeError, match="only the master"):
            change(TWO, THREE)
    with pytest.raises(GroupChangeError, match="cannot remove itself"):
        PAIR.without(ONE, ONE)


def test_a_forced_term_says_so_and_the_next_one_does_not() -> None:
    forced = PAIR.forced(THREE)

    assert forced == BrokerGroup(5, THREE, frozenset({THREE}), is_unclean=True)
    assert not forced.next_term(THREE).is_unclean


def test_a_master_is_in_sync() -> None:
    with pytest.raises(AssertionError):
        BrokerGroup(1, ONE, frozenset({TWO}))
