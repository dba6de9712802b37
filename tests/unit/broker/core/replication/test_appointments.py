"""Appointments: who may release a replica from its promise."""

from __future__ import annotations

import pytest

from eruca_broker.core.replication.appointments import author_of, is_released, replica_of
from eruca_broker.core.replication.broker_group import BrokerGroup, Member
from eruca_broker.core.replication.roles import Standing

ONE, TWO, THREE = Member(1, "one"), Member(2, "two"), Member(3, "three")
ROW = BrokerGroup(6, ONE, frozenset({ONE, TWO, THREE}))


@pytest.mark.parametrize("broker_name", ["broker-a", "room@a", "a replica 7 run 9"])
def test_an_author_tells_its_replica(broker_name: str) -> None:
    assert replica_of(author_of(broker_name, 12, "0a1b2c3d")) == 12


@pytest.mark.parametrize(
    "author", ["", "operator", "broker-a replica 0 run 1", "broker-a replica 2", "replica 2 run 1"]
)
def test_others_are_no_replica(author: str) -> None:
    assert replica_of(author) is None


@pytest.mark.parametrize(
    ("by", "followed", "released"),
    [
        (author_of("a", 2, "f"), TWO, True),  # its master hands over
        (author_of("a", 1, "e"), TWO, True),  # it has asked for the term before it was restarted
        (author_of("a", 3, "f"), TWO, False),
        (author_of("a", 2, "f"), None, False),  # it was restarted: nobody knows what it promised
        ("operator", TWO, False),
        ("operator", None, False),
    ],
)
def test_only_the_master_that_it_follows_releases_a_replica(
    by: str, followed: Member | None, *, released: bool
) -> None:
    """Rule 10."""
    me = Standing(ONE, last_epoch=5, end=100)
    assert is_released(ROW, me, author=by, followed=followed) is released


def test_a_master_whose_term_began_in_its_log_has_promised_nothing_since() -> None:
    me = Standing(ONE, last_epoch=6, end=100)
    assert is_released(ROW, me, author="operator", followed=None)
