"""Reads at a standby: it shows what it has, and never says that something does not exist."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.broker_groups import GroupOfProcesses, group_of
from support.waiting import wait_until

NOTHING: Final = {
    "/v1/topics/none": (404, "topic-not-found"),
    "/v1/topics/none/queues": (404, "topic-not-found"),
    "/v1/topics/orders/queues/77/messages?offset=0": (404, "queue-not-found"),
    "/v1/topics/none/queues/0/offset?timestamp=2026-11-21T08:00:00Z": (404, "topic-not-found"),
    "/v1/topics/none/messages?key=k": (404, "topic-not-found"),
    "/v1/log/records/4096000": (404, "record-not-found"),
    "/v1/log?from_offset=4096000": (404, "record-not-found"),
    "/v1/groups/none/dead-letters": (404, "group-not-found"),
    "/v1/groups/none/dead-letters/0": (404, "group-not-found"),
    "/v1/transactions/none": (404, "transaction-not-found"),
    # Answers without any result.
    "/v1/topics/orders/messages?key=none": (200, None),
    "/v1/groups/none/offsets": (200, None),
    "/v1/scheduled": (200, None),
    "/v1/transactions": (200, None),
}


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroupOfProcesses]:
    with group_of(tmp_path_factory.mktemp("group"), 1, 2) as group:
        assert group.send("first", at=1).status_code == 201
        wait_until(lambda: group.bodies(2) == ["first"])
        yield group


@pytest.mark.parametrize("path", NOTHING)
def test_the_master_says_that_there_is_nothing(group: GroupOfProcesses, path: str) -> None:
    """The standby cannot know: it may not have copied yet what was acknowledged."""
    status, code = NOTHING[path]

    redirect = group.request("GET", 2, path)
    answer = group.request("GET", 1, path)

    assert (redirect.status_code, redirect.json()["code"]) == (307, "not-master")
    assert redirect.headers["location"] == group.url(1) + path
    assert (answer.status_code, answer.json().get("code")) == (status, code)


def test_a_standby_shows_what_it_has(group: GroupOfProcesses) -> None:
    for path in ("/v1/topics", "/v1/topics/orders", "/v1/topics/orders/queues"):
        shown = group.request("GET", 2, path)
        assert shown.status_code == 200
        assert int(shown.headers["eruca-confirmed"]) > 0


def test_without_a_master_nobody_says_that_there_is_nothing(tmp_path: Path) -> None:
    with group_of(tmp_path, 1, 2) as group:
        assert group.send("first", at=1).status_code == 201
        wait_until(lambda: group.bodies(2) == ["first"])
        assert group.controller is not None
        with group.controller:
            pass  # nobody can appoint the standby
        group.controller = None
        group.kill(1)

        def code() -> str | None:
            found: str | None = group.request("GET", 2, "/v1/topics/none").json().get("code")
            return found

        wait_until(lambda: code() == "not-master-for-sure")
        assert group.bodies(2) == ["first"]
