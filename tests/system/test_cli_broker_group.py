"""``eruca broker`` on real replicas: what is lost is said before, and nothing else is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.broker_groups import GROUP, GroupOfProcesses, group_of
from support.command_line import Eruca
from support.waiting import wait_until


@pytest.fixture
def group(tmp_path: Path) -> Iterator[GroupOfProcesses]:
    with group_of(tmp_path, 1, 2) as group:
        yield group


@pytest.fixture
def eruca(group: GroupOfProcesses) -> Eruca:
    eruca = Eruca("http://127.0.0.1:1")  # the commands need no name server
    eruca.environment["ERUCA_CONTROLLER_URLS"] = group.controller_url
    return eruca


def test_a_switch_and_a_third_replica(
    group: GroupOfProcesses, eruca: Eruca, tmp_path: Path
) -> None:
    assert group.send("before").status_code == 201
    first = group.await_master()
    other = 3 - first

    done = eruca("broker", "switch", GROUP, "--to", str(other))

    assert f"replica {other} is the master of epoch 3" in done.stderr
    group.start(3)
    assert "replica 3 of broker-a is in sync" in (
        eruca("broker", "add-replica", GROUP, "--replica", "3").stderr
    )
    wait_until(lambda: group.bodies(3) == ["before"])  # until then it sends readers to the master
    group.kill(3)
    eruca("broker", "remove-replica", GROUP, "--replica", "3", "--yes")
    row = group.row()
    assert [replica["replica_id"] for replica in row["replicas"]] == [1, 2]
    # The master waits for the removed replica no longer.
    wait_until(lambda: group.send("after").status_code == 201)


def test_an_election_of_the_replica_that_is_left(group: GroupOfProcesses, eruca: Eruca) -> None:
    assert group.send("on both").status_code == 201
    first = group.await_master()
    other = 3 - first
    group.kill(other)
    wait_until(lambda: len(group.row()["in_sync"]) == 1)
    # For a moment after the change the master is not certain yet that it may go on alone.
    wait_until(lambda: group.send("on one", at=first).status_code == 201)
    group.kill(first)
    group.start(other)
    wait_until(lambda: group.status(other) is not None)
    elect = ("broker", "elect", GROUP, "--replica", str(other))

    refused = eruca(*elect, code=2).stderr
    eruca(*elect, "--accept-loss", "--yes")

    assert "is not in sync" in " ".join(refused.split())
    assert group.await_master() == other
    assert group.bodies(other) == ["on both"]
    assert group.row()["unclean"]
    group.start(first)
    group.await_master(copies=2)
    wait_until(lambda: group.bodies(first) == ["on both"])


def test_an_arbiter_restored_from_an_old_copy_rule_13(
    group: GroupOfProcesses, eruca: Eruca, tmp_path: Path
) -> None:
    shutil.copytree(tmp_path / "groups", tmp_path / "copy")
    eruca("broker", "switch", GROUP)
    epoch = group.row()["epoch"]
    restore_arbiter(group, tmp_path)
    assert group.row()["epoch"] < epoch

    eruca("broker", "repair-arbiter", GROUP, "--yes")

    assert group.row()["epoch"] > epoch
    # The master takes a term of its own, and is not certain for a moment.
    wait_until(lambda: group.send("after").status_code == 201)
    refused = eruca("broker", "repair-arbiter", GROUP, "--yes", code=1).stderr
    assert "the arbiter is not behind" in refused


def test_a_master_that_knows_no_more_than_a_restored_arbiter_takes_no_term_rule_13(
    group: GroupOfProcesses, eruca: Eruca, tmp_path: Path
) -> None:
    first = group.await_master(copies=2)
    other = 3 - first
    shutil.copytree(tmp_path / "groups", tmp_path / "copy")
    group.kill(first)
    assert group.await_master(other_than=first) == other
    wait_until(lambda: group.send("after", at=other).status_code == 201)
    epoch = group.row()["epoch"]
    restore_arbiter(group, tmp_path)

    group.start(first)  # the row and its own log say that it is the master

    wait_until(lambda: any("repair-arbiter" in e["reason"] for e in group.replicas[first].errors()))
    assert group.row()["epoch"] < epoch
    eruca("broker", "repair-arbiter", GROUP, "--yes")
    assert group.await_master(copies=2) == other
    wait_until(lambda: group.bodies(first) == ["after"])


def restore_arbiter(group: GroupOfProcesses, directory: Path) -> None:
    """Put the copy of the arbiter's files in their place."""
    assert group.controller is not None
    with group.controller as controller:
        controller.stop()
    shutil.rmtree(directory / "groups")
    shutil.copytree(directory / "copy", directory / "groups")
    group.start_controller()
