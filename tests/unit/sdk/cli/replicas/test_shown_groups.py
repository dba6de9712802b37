"""A broker group as people see it."""

from __future__ import annotations

import pytest

from eruca.cli.replicas.missing_messages import MissingMessages
from eruca.cli.replicas.shown_groups import loss_text, problem_of, replica_row
from support.group_rows import CHANGED_AT, group, replica, status

FOLLOWING = {
    "state": "connecting",
    "reason": "http://127.0.0.1:10911: connection refused",
    "master_url": "http://127.0.0.1:10911",
    "behind_bytes": None,
    "behind_seconds": None,
    "last_contact_at": CHANGED_AT,
    "clock_skew_seconds": None,
}


def test_a_replica_in_sync_has_no_problem() -> None:
    assert problem_of(group(), 2, status(2)) is None
    assert replica_row(group(), replica(2), status(2))[:2] == (2, "standby")


def test_a_standby_outside_the_set_is_a_learner() -> None:
    row = replica_row(group(), replica(3), status(3))

    assert row[:2] == (3, "learner")
    assert row[-1] == "not in sync"


def test_a_store_under_another_uid_is_not_in_sync() -> None:
    assert problem_of(group(), 2, status(2, uid="newer")) == "not in sync"


def test_a_replica_that_cannot_follow_says_why() -> None:
    lagging = status(3, following=FOLLOWING)

    assert problem_of(group(), 3, lagging) == FOLLOWING["reason"]


def test_a_replica_that_does_not_answer_has_no_figures() -> None:
    assert replica_row(group(), replica(3), None)[1:5] == (None,) * 4


def test_a_loss_is_told_in_bytes_and_since_when_nobody_knows() -> None:
    behind = status(3, end=600, following=FOLLOWING)

    text = loss_text(3, group(), {3: behind})

    assert "at least 400 bytes" in text
    assert "do not answer: 1, 2" in text
    assert CHANGED_AT.isoformat() in text


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (MissingMessages(3, is_all=True), "at least 3 confirmed messages (400 bytes)"),
        (MissingMessages(3, is_all=False), "more than 3 confirmed messages (400 bytes)"),
    ],
)
def test_a_loss_is_told_in_messages_if_another_replica_has_them(
    messages: MissingMessages, expected: str
) -> None:
    behind = status(3, end=600)

    assert expected in loss_text(3, group(), {2: status(2), 3: behind}, messages)


def test_a_loss_is_known_exactly_if_every_member_answers() -> None:
    behind = status(3, end=600)

    text = loss_text(3, group(), {1: status(1), 2: status(2), 3: behind})

    assert "at least 400 bytes" in text
    assert "do not answer" not in text
