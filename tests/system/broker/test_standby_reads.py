"""Reads at a standby: it shows what it has, and never says that something does not exist."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from eruca_chassis.requests.cursors import encode_cursor
from support.broker_groups import GroupOfProcesses, group_of
from support.waiting import wait_until

LARGE: Final = 1024**2  # bytes of a message; four fill a segment
QUEUE: Final = "/v1/topics/orders/queues/0"
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
    f"/v1/groups/none/dead-letters?cursor={encode_cursor('0.1.0.1')}": (422, "validation-failed"),
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
        group.leave_without_a_master(1)

        def code() -> str | None:
            found: str | None = group.request("GET", 2, "/v1/topics/none").json().get("code")
            return found

        wait_until(lambda: code() == "not-master-for-sure")
        assert group.bodies(2) == ["first"]


def test_nobody_but_a_master_sends_a_reader_past_messages(tmp_path: Path) -> None:
    """The standby's log begins later, and the master has the messages before that."""
    with group_of(tmp_path, 1, 2) as group:
        for number in range(12):
            queue_id = 0 if number < 11 else 1
            body = str(number).ljust(LARGE)
            assert group.send(body, at=1, queue_id=queue_id, copies=2).status_code == 201
        group.restart_without_its_beginning(2)
        begin = wait_until(lambda: begin_at(group, 2))
        first, many = f"{QUEUE}/messages?offset=0", pull_of_both_queues()

        for offset in (0, begin - 1):
            path = f"{QUEUE}/messages?offset={offset}"
            redirect = group.request("GET", 2, path)
            assert (redirect.status_code, redirect.headers["location"]) == (
                307,
                group.url(1) + path,
            )
        assert group.request("POST", 2, "/v1/pull", json=many).status_code == 307
        assert group.request("GET", 1, first).json()["messages"][0]["queue_offset"] == 0
        had = group.request("GET", 2, f"{QUEUE}/messages?offset={begin}").json()
        assert had["messages"][0]["queue_offset"] == begin

        group.leave_without_a_master(1)

        wait_until(lambda: group.request("GET", 2, first).status_code == 503)
        assert group.request("GET", 2, first).json()["code"] == "not-master-for-sure"
        [other] = group.request("POST", 2, "/v1/pull", json=many).json()["queues"]
        assert other["queue_id"] == 1, "a queue that is there does not wait for the others"
        assert len(other["answer"]["messages"]) == 1


def begin_at(group: GroupOfProcesses, replica_id: int) -> int:
    """Return the first offset of the first queue that a replica shows."""
    answer = group.request("GET", replica_id, QUEUE.rpartition("/")[0])
    offset: int = answer.json()["queues"][0]["min_offset"] if answer.status_code == 200 else 0
    return offset


def pull_of_both_queues() -> dict[str, list[dict[str, object]]]:
    return {"queues": [{"topic": "orders", "queue_id": n, "offset": 0} for n in range(2)]}
