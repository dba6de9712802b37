"""Identities: a store keeps its uid only if it is certain to have all that it acknowledged."""

from __future__ import annotations

from itertools import product

import pytest

from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.identity import (
    FORMER_UIDS_MAX,
    Identity,
    OpenMark,
    may_have_lost,
)


@pytest.mark.parametrize(
    ("boot", "was_sync", "boot_now", "is_sync"),
    [*product(["a", "b", None], [False, True], ["a", None], [False, True])],
)
def test_only_unflushed_records_of_another_kernel_may_be_lost(
    boot: str | None, boot_now: str | None, *, was_sync: bool, is_sync: bool
) -> None:
    """Rule 8, exhaustively."""
    is_same_kernel = boot == boot_now == "a"
    mark = OpenMark(boot, is_sync=was_sync)

    assert may_have_lost(mark, boot_id=boot_now, is_sync=is_sync) == (
        not is_same_kernel and not (was_sync and is_sync)
    )
    assert not may_have_lost(None, boot_id=boot_now, is_sync=is_sync)


def test_a_doubted_store_is_another_member_and_knows_what_it_was() -> None:
    """Rule 1."""
    first = Identity(2, "a")
    third = first.doubted("b").doubted("c")

    assert (first.member, first.former_uids) == (Member(2, "a"), ())
    assert (third.member, third.former_uids[0]) == (Member(2, "c"), "b")
    assert [third.was(Member(2, uid)) for uid in "abcd"] == [True, True, False, False]
    assert not third.was(Member(1, "a"))


def test_former_uids_are_bounded() -> None:
    identity = Identity(1, "0")
    for number in range(1, 40):
        identity = identity.doubted(str(number))

    assert len(identity.former_uids) == FORMER_UIDS_MAX
    assert identity.former_uids[0] == "38"


def test_a_uid_is_used_once() -> None:
    with pytest.raises(AssertionError, match="rule 1"):
        Identity(1, "a").doubted("a")
