"""A broker group of real processes: founding, fail-over, hand-over, and masters that are none."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from eruca_broker.core.replication.master_lease import PROMISE_SECONDS
from support.broker_groups import GroupOfProcesses, group_of
from support.waiting import wait_until

RETRIED: Final = frozenset({429, 503})
OTHER_BOOT: Final = "00000000-0000-0000-0000-000000000000"


class Sender:
    """A plain HTTP client that sends without pause, follows redirects and retries what it may."""

    def __init__(self, group: GroupOfProcesses, first: int) -> None:
        self.acknowledged: list[str] = []
        self.failures: list[str] = []
        self._urls = [group.url(first), *map(group.url, sorted(group.replicas))]
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        with httpx.Client(trust_env=False, follow_redirects=False) as client:
            while not self._ends.is_set():
                body = f"m{number:06d}"
                if self._send(client, body):
                    self.acknowledged.append(body)
                number += 1

    def _send(self, client: httpx.Client, body: str) -> bool:
        url = f"{self._urls[0]}/v1/topics/orders/messages"
        for attempt in range(2_000):
            try:
                answer = client.post(
                    url,
                    json={"body": {"text": body}},
                    headers={"idempotency-key": body},
                    timeout=10,
                )
            except httpx.TransportError as error:
                self.failures.append(f"{body}: {error!r}")
                url = f"{self._urls[attempt % len(self._urls)]}/v1/topics/orders/messages"
                self._ends.wait(0.02)  # the pace of the retries
                continue
            if answer.status_code == 201:
                self._urls[0] = url.removesuffix("/v1/topics/orders/messages")
                return True
            if answer.status_code == 307:
                url = answer.headers["location"]
            elif answer.status_code not in RETRIED:
                self.failures.append(f"{body}: {answer.text}")
                return False
            self._ends.wait(0.02)  # the pace of the retries
            if self._ends.is_set():
                return False
        self.failures.append(f"{body}: never acknowledged")
        return False

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send for the block."""
        self._thread.start()
        try:
            yield
        finally:
            self._ends.set()
            self._thread.join()

    def await_more(self, count: int = 50) -> None:
        """Return once so many more messages are acknowledged."""
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


def problem_of(answer: httpx.Response) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    return document


def assert_all_hold(group: GroupOfProcesses, bodies: list[str], *replica_ids: int) -> None:
    """Check that replicas show the same messages, *bodies* among them, each of these once."""
    master = group.bodies(group.await_master())
    assert [body for body in master if body in set(bodies)] == sorted(bodies)
    for replica_id in replica_ids:
        wait_until(lambda replica_id=replica_id: group.bodies(replica_id) == master)  # type: ignore[misc]


def test_a_standby_serves_what_is_confirmed_and_redirects_the_rest(directory: Path) -> None:
    """Rules 7 and 12, and the copies that a send may ask for."""
    with group_of(directory, 1, 2, min_in_sync="2") as group:
        row = group.row()
        assert (row["epoch"], row["master"]["replica_id"]) == (1, 1)
        assert [replica["replica_id"] for replica in row["replicas"]] == [1, 2]

        sent = group.send("first", at=1, copies=2)
        assert (sent.status_code, sent.json()["copies"]) == (201, 2)
        refused = group.send("never", at=1, copies=3)
        assert (refused.status_code, problem_of(refused)["code"]) == (503, "not-enough-replicas")

        redirected = group.send("elsewhere", at=2)
        assert redirected.status_code == 307
        assert redirected.headers["location"] == f"{group.url(1)}/v1/topics/orders/messages"
        problem = problem_of(redirected)
        assert (problem["code"], problem["epoch"]) == ("not-master", 1)
        assert problem["master_urls"] == {"default": group.url(1)}
        for path in ("/v1/groups", "/v1/groups/g/members"):  # ordinary routes take the same door
            assert group.request("GET", 2, path).status_code == 307

        wait_until(lambda: group.bodies(2) == ["first"])
        read = group.request("GET", 2, "/v1/log", params={"from_offset": 0})
        assert int(read.headers["eruca-confirmed"]) > sent.json()["log_offset"]
        assert float(read.headers["eruca-behind-seconds"]) >= 0
        assert "eruca-confirmed" not in group.request("GET", 1, "/v1/log").headers
        status = group.request("GET", 2, "/v1/status").json()
        assert (status["role"], status["broker_id"]) == ("standby", 2)
        assert group.request("GET", 2, "/readyz").status_code == 200

        group.kill(2)  # it is removed from the set once it has been silent for long enough

        def in_sync_count() -> int:
            status = group.status(1)
            return 0 if status is None else len(status["in_sync"])

        wait_until(lambda: in_sync_count() == 1)  # the master knows the arbiter's answer
        refused = group.send("alone", at=1)
        assert (refused.status_code, problem_of(refused)["code"]) == (503, "not-enough-replicas")
        assert group.bodies(1) == ["first"]


def test_a_killed_master_is_replaced_and_nothing_acknowledged_is_lost(directory: Path) -> None:
    """Rule 6."""
    with group_of(directory, 1, 2, 3) as group:
        sender = Sender(group, 1)
        with sender.sending():
            sender.await_more()
            group.kill(1)
            successor = group.await_master(other_than=1)
            sender.await_more()
            group.start(1)
            group.await_master(copies=3)
            sender.await_more()

        assert successor != 1
        assert group.row()["epoch"] >= 2  # on a busy machine the successor may be replaced, too
        assert_all_hold(group, sender.acknowledged, 1, 2, 3)


def test_a_new_master_has_as_much_time_as_its_predecessor_had(directory: Path) -> None:
    """No other standby takes it for the silent one that it has replaced."""
    with group_of(directory, 1, 2, 3) as group:
        former = group.await_master(copies=3)

        group.kill(former)
        group.await_master(other_than=former, copies=2)

        terms = group.terms()
    assert len(terms) > 1
    for (_, begun), (reason, replaced) in pairwise(terms):
        assert replaced - begun >= timedelta(seconds=PROMISE_SECONDS), reason


def test_an_orderly_stop_hands_over_without_a_failed_send(directory: Path) -> None:
    """Rule 12: the old master redirects until it has gone."""
    with group_of(directory, 1, 2) as group:
        sender = Sender(group, 1)
        with sender.sending():
            sender.await_more()
            group.stop(1)
            assert group.master() == 2
            sender.await_more()

        # A connection may close between two of its requests; anything else would be a failure.
        assert not [failure for failure in sender.failures if "Disconnected" not in failure]
        assert group.row()["in_sync"] == [group.row()["master"]]
        assert_all_hold(group, sender.acknowledged, 2)


def test_an_operator_lets_another_replica_become_master(directory: Path) -> None:
    with group_of(directory, 1, 2) as group:
        sender = Sender(group, 1)
        with sender.sending():
            sender.await_more()
            switched = group.request("POST", 1, "/v1/replication/switch", json={"to": 2})
            assert switched.status_code == 200, switched.text
            assert switched.json()["master"]["replica_id"] == 2
            assert switched.json()["master_urls"] == {"default": group.url(2)}
            group.await_master(other_than=1, copies=2)
            sender.await_more()

        assert not sender.failures
        assert_all_hold(group, sender.acknowledged, 1, 2)
        elsewhere = group.request("POST", 1, "/v1/replication/switch", json={})
        assert elsewhere.status_code == 307
        nobody = group.request("POST", 2, "/v1/replication/switch", json={"to": 3})
        assert (nobody.status_code, problem_of(nobody)["code"]) == (409, "conflict")


def test_a_master_that_was_paused_does_no_masters_work(directory: Path) -> None:
    """Rules 10 and 12: it answers redirects and 503, until it follows."""
    with group_of(directory, 1, 2) as group:
        assert group.send("before", at=1).status_code == 201
        paused = group.replicas.pop(1)
        os.kill(paused.pid, signal.SIGSTOP)
        try:
            assert group.await_master() == 2
            assert group.send("after", at=2).status_code == 201
        finally:
            os.kill(paused.pid, signal.SIGCONT)
        group.replicas[1] = paused

        while (status := group.status(1)) is None or status["role"] != "standby":
            answer = group.send("stale", at=1)
            assert answer.status_code in (307, 503), answer.text
            answer = group.request("PUT", 1, "/v1/topics/stale", json={})
            assert answer.status_code in (307, 503), answer.text
        group.await_master(copies=2)
        assert_all_hold(group, ["after", "before"], 1, 2)


def test_a_master_without_its_lease_sends_no_reader_back(directory: Path) -> None:
    """Another replica may be the master by now, and the reader may come from there."""
    with group_of(directory, 1, 2) as group:
        master = group.await_master(copies=2)
        assert group.send("one").status_code == 201
        paused = group.replicas[3 - master]
        os.kill(paused.pid, signal.SIGSTOP)
        try:
            answer = wait_until(lambda: _stale(group, master))
        finally:
            os.kill(paused.pid, signal.SIGCONT)

        assert answer.json()["next_offset"] == 1_000


def _stale(group: GroupOfProcesses, replica_id: int) -> httpx.Response | None:
    path = "/v1/topics/orders/queues/0/messages?offset=1000"
    answer = group.request("GET", replica_id, path)
    return answer if answer.headers.get("eruca-stale") == "true" else None


def test_without_its_arbiter_a_group_goes_on_as_it_is(directory: Path) -> None:
    with group_of(directory, 1, 2) as group:
        assert group.controller is not None
        with group.controller:
            pass
        group.controller = None

        assert group.send("without", at=1).json()["copies"] == 2
        refused = group.request("POST", 1, "/v1/replication/switch", json={})
        assert refused.status_code == 503
        assert group.send("again", at=1).status_code == 201  # it has remained the master

        group.start_controller()
        group.kill(2)
        wait_until(lambda: len(group.row()["in_sync"]) == 1)
        assert group.row()["epoch"] == 1


def test_a_wiped_replica_joins_as_another_member(directory: Path) -> None:
    """Rule 1: its former place in the set is not its own."""
    with group_of(directory, 1, 2) as group:
        group.send("kept", at=1)
        before = {name["uid"] for name in group.row()["in_sync"]}
        group.kill(2)
        shutil.rmtree(group.store_of(2))

        group.start(2)

        wait_until(lambda: len({name["uid"] for name in group.row()["in_sync"]} - before) == 1)
        group.await_master(copies=2)
        assert_all_hold(group, ["kept"], 2)


def test_a_restored_backup_without_its_identity_joins_as_another_member(directory: Path) -> None:
    """Rule 1: with it, it would claim to have what was acknowledged since."""
    with group_of(directory, 1, 2) as group:
        group.send("in the backup", at=1)
        wait_until(lambda: group.bodies(2) == ["in the backup"])
        group.stop(2)
        shutil.copytree(group.store_of(2), directory / "backup")
        group.start(2)
        group.await_master(copies=2)
        assert group.send("since then", at=1, copies=2).status_code == 201
        before = {name["uid"] for name in group.row()["in_sync"]}
        group.kill(2)
        shutil.rmtree(group.store_of(2))
        shutil.copytree(directory / "backup", group.store_of(2))
        (group.store_of(2) / "config" / "replica.json").unlink()

        group.start(2)

        wait_until(lambda: len({name["uid"] for name in group.row()["in_sync"]} - before) == 1)
        assert_all_hold(group, ["in the backup", "since then"], 2)


def test_a_restarted_master_begins_another_epoch(directory: Path) -> None:
    """Rule 3, also for the only replica of a group."""
    with group_of(directory, 1) as group:
        group.send("kept", at=1)
        group.kill(1)
        group.start(1)
        group.await_master()
        assert group.row()["epoch"] == 2
        group.stop(1)

        group.start(1)

        group.await_master()
        assert group.row()["epoch"] == 3
        assert group.bodies(1) == ["kept"]


def test_an_arbiter_that_has_lost_changes_is_refused(directory: Path) -> None:
    """Rule 13: the log has a later epoch than the row."""
    with group_of(directory, 1) as group:
        earlier = shutil.copytree(directory / "groups", directory / "earlier")
        group.kill(1)
        group.start(1)
        group.await_master()
        group.kill(1)
        assert group.controller is not None
        with group.controller:
            pass
        shutil.rmtree(directory / "groups")
        shutil.copytree(earlier, directory / "groups")
        group.start_controller()

        process = group.start(1)
        refusal = "this replica follows nobody"
        wait_until(lambda: [line for line in process.errors() if line["event"] == refusal])

        answer = group.send("never", at=1)
        assert (answer.status_code, problem_of(answer)["code"]) == (503, "not-master-for-sure")
        assert group.row()["epoch"] == 1


def kernel_changed(group: GroupOfProcesses, replica_id: int) -> None:
    """Let the next start of a killed replica find another kernel than its last process had."""
    mark = group.store_of(replica_id) / "abort"
    _, mode = mark.read_text().split()
    mark.write_text(f"{OTHER_BOOT} {mode}\n")


def test_the_only_replica_takes_an_unclean_term_after_its_machine_went_down(
    directory: Path,
) -> None:
    """Rule 8: nobody else could have more; the epoch says that something may be missing."""
    with group_of(directory, 1) as group:
        before = group.row()
        group.send("written", at=1)
        group.kill(1)
        kernel_changed(group, 1)

        group.start(1)

        group.await_master()
        row = group.row()
        assert (row["epoch"], row["unclean"]) == (2, True)
        assert row["master"]["uid"] != before["master"]["uid"]
        assert group.bodies(1) == ["written"]


def test_after_all_machines_went_down_the_longest_log_goes_on(directory: Path) -> None:
    """Rule 8: it waits for the other replicas to report."""
    with group_of(directory, 1, 2) as group:
        group.send("both", at=1)
        group.kill(2)
        wait_until(lambda: len(group.row()["in_sync"]) == 1)
        group.start(2)
        group.await_master(copies=2)
        group.kill(2)
        group.kill(1)
        for replica_id in (1, 2):
            kernel_changed(group, replica_id)

        for replica_id in (2, 1):
            group.start(replica_id, recovery_wait_seconds="1")

        group.await_master(copies=2)
        row = group.row()
        assert row["unclean"]
        assert_all_hold(group, ["both"], 1, 2)


def test_a_machine_that_went_down_alone_loses_its_place_only(directory: Path) -> None:
    """Rule 8: the other member takes a clean term."""
    with group_of(directory, 1, 2) as group:
        group.send("both", at=1)
        group.kill(1)
        kernel_changed(group, 1)

        group.start(1)

        assert group.await_master(copies=2) == 2
        row = group.row()
        assert (row["epoch"], row["unclean"]) == (2, False)
        assert_all_hold(group, ["both"], 1, 2)


def test_a_term_that_never_began_makes_no_record_confirmed(directory: Path) -> None:
    """Rules 7 and 9: a start dispatches unconfirmed records, too; they may still be truncated."""
    with group_of(directory, 1, 2) as group:
        assert group.send("confirmed", at=1).status_code == 201
        group.kill(2)
        with pytest.raises(httpx.ReadTimeout):
            group.request(
                *("POST", 1, "/v1/topics/orders/messages"),
                json={"body": {"text": "never confirmed"}},
                timeout=0.5,
            )
        group.kill(1)
        group.start(1)
        wait_until(lambda: group.row()["epoch"] == 2)
        superseded = group.replicas.pop(1)
        os.kill(superseded.pid, signal.SIGSTOP)  # before its epoch could be confirmed
        try:
            group.start(2)
            wait_until(lambda: group.row()["epoch"] == 3)
        finally:
            os.kill(superseded.pid, signal.SIGCONT)
        group.replicas[1] = superseded

        assert group.await_master(other_than=1, copies=2) == 2
        wait_until(lambda: group.request("GET", 1, "/v1/topics/orders").is_success)
        assert group.bodies(1) == group.bodies(2) == ["confirmed"]


def test_a_damaged_record_is_repaired_by_another_replica(directory: Path) -> None:
    """Rule 11: the scrub finds it, and the peer's copy proves itself."""
    body = "a message that a disk will damage"
    with group_of(directory, 1, 2, scrub_hours="0.0003") as group:
        group.send(body, at=1)
        wait_until(lambda: group.bodies(2) == [body])
        [segment] = sorted((group.store_of(2) / "commitlog").glob("0*"))[:1]
        position = segment.read_bytes().index(body.encode())
        with segment.open("r+b") as file:
            file.seek(position)
            file.write(b"A")

        wait_until(lambda: segment.read_bytes()[position : position + 1] == b"a")

        wait_until(lambda: group.bodies(2) == [body])
        status = group.status(2)
        assert status is not None
        assert not status["damaged"]
