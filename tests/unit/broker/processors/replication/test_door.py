"""The door of a replica: what each role answers, and what it says beside the answer."""

from __future__ import annotations

from math import inf

import pytest

from eruca.contract.errors import (
    NotEnoughReplicasError,
    NotMasterError,
    NotMasterForSureError,
    NotReadyError,
    TopicNotFoundError,
    ValidationError,
)
from eruca_broker.core.replication.roles import Role
from eruca_broker.processors.replication.door import RoleDoor

MASTER_URLS = {"default": "http://master:10911"}


@pytest.fixture
def door() -> RoleDoor:
    door = RoleDoor(lambda: 100.0)
    door.is_closed = False
    door.lease_until = lambda: inf
    door.in_sync_count = lambda: 2
    return door


def kinds(door: RoleDoor) -> list[type[Exception] | None]:
    """Return the refusals of a status, a read, a commit and a send."""
    refusals = map(door.refusal, ("getStatus", "pullMessages", "commitOffsets", "sendRecords"))
    return [None if refusal is None else type(refusal) for refusal in refusals]


def test_a_standby_answers_reads_once_it_knows_that_they_are_confirmed(door: RoleDoor) -> None:
    """Rules 7 and 12."""
    door.master_urls, door.master_epoch = MASTER_URLS, 7
    assert kinds(door) == [None, NotMasterError, NotMasterError, NotMasterError]

    door.shows_confirmed = True

    assert kinds(door) == [None, None, NotMasterError, NotMasterError]
    refusal = door.refusal("sendRecords")
    assert isinstance(refusal, NotMasterError)
    assert (refusal.epoch, refusal.master_urls) == (7, MASTER_URLS)
    assert refusal.redirect_url == MASTER_URLS["default"]


def test_a_standby_never_says_that_something_does_not_exist(door: RoleDoor) -> None:
    """Rule 7: it may not have copied yet what was acknowledged."""
    missing, invalid = TopicNotFoundError("no topic orders"), ValidationError("no")
    door.shows_confirmed = True

    assert isinstance(door.failure("getTopic", missing), NotMasterForSureError)
    door.master_urls = MASTER_URLS
    assert isinstance(door.failure("getTopic", missing), NotMasterError)
    assert isinstance(door.doubt(), NotMasterError)
    assert door.failure("getTopic", invalid) is invalid
    assert door.failure("getStatus", missing) is missing

    door.role = Role.MASTER
    assert door.failure("getTopic", missing) is missing
    assert door.doubt() is None


def test_only_a_master_that_is_sure_lets_readers_pass_messages(door: RoleDoor) -> None:
    """Rules 7 and 10: what a replica lacks, the next master may have."""
    assert isinstance(door.doubt_of_reading(), NotMasterForSureError)
    door.master_urls = MASTER_URLS
    assert isinstance(door.doubt_of_reading(), NotMasterError)

    door.role = Role.MASTER
    assert door.doubt_of_reading() is None
    door.is_leaving = True
    assert isinstance(door.doubt_of_reading(), NotMasterForSureError)
    door.is_leaving, door.lease_until = False, lambda: 99.0
    assert isinstance(door.doubt_of_reading(), NotMasterForSureError)


@pytest.mark.parametrize("role", [Role.TAKING_OVER, Role.DEMOTED])
def test_between_two_roles_nothing_is_answered_but_replication(door: RoleDoor, role: Role) -> None:
    """Rule 7: before its epoch is confirmed, a master does not know what is."""
    door.role, door.shows_confirmed = role, True
    assert kinds(door) == [None, *3 * [NotMasterForSureError]]


def test_without_a_known_master_a_standby_says_when_to_come_back(door: RoleDoor) -> None:
    refusal = door.refusal("sendRecords")
    assert isinstance(refusal, NotMasterForSureError)
    assert refusal.retry_after_seconds == 1


def test_a_master_without_its_lease_answers_reads_alone_and_marks_them(door: RoleDoor) -> None:
    """Rule 10."""
    door.role = Role.MASTER
    assert kinds(door) == 4 * [None]
    assert door.headers("pullMessages") == ()

    door.lease_until = lambda: 100.0

    assert kinds(door) == [None, None, NotMasterForSureError, NotMasterForSureError]
    assert door.headers("pullMessages") == ((b"eruca-stale", b"true"),)
    assert door.headers("getStatus") == ()


def test_below_min_in_sync_sends_are_refused_and_nothing_else(door: RoleDoor) -> None:
    door.role, door.min_in_sync = Role.MASTER, 3
    assert kinds(door) == [None, None, None, NotEnoughReplicasError]
    assert "min_in_sync is 3, but 2 replicas are in sync" in str(door.refusal("sendMessages"))


def test_a_master_that_hands_over_accepts_nothing_new(door: RoleDoor) -> None:
    door.role, door.is_leaving = Role.MASTER, True
    assert kinds(door) == [None, None, NotMasterForSureError, NotMasterForSureError]
    # The arbiter may have named the successor, and its answer be on the way.
    assert door.headers("pullMessages") == ((b"eruca-stale", b"true"),)


def test_while_the_store_is_closed_nothing_is_answered(door: RoleDoor) -> None:
    door.is_closed = True
    assert kinds(door) == 4 * [NotReadyError]
    assert door.headers("pullMessages") == ()


def test_a_standby_says_how_far_its_answers_reach(door: RoleDoor) -> None:
    """Rule 7."""
    door.shows_confirmed = True
    door.confirmed = lambda: 8_201_544
    assert door.headers("readLog") == [(b"eruca-confirmed", b"8201544")]

    door.behind_seconds = lambda: 0.25

    assert door.headers("readLog")[1] == (b"eruca-behind-seconds", b"0.250")
    assert door.headers("sendRecords") == ()


def test_an_unknown_operation_is_the_masters(door: RoleDoor) -> None:
    door.shows_confirmed = True
    assert isinstance(door.refusal("brandNew"), NotMasterForSureError)
