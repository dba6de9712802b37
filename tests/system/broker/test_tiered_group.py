"""A broker group with a tier, as processes: masters killed and suspended, and new replicas.

Uploads are slow here: a segment takes about a second. Retention deletes whatever the tier has.
"""

from __future__ import annotations

import os
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from eruca_broker.core.tier.manifests import Manifest, decoded, number_of
from support.broker_groups import GroupOfProcesses, group_of
from support.waiting import wait_until

SEGMENT_SIZE: Final = 1024**2
BODY: Final = "x" * 100_000
IN_SEGMENT: Final = 10  # messages
SLOW_SECONDS: Final = 180.0  # retention looks every 10 s, replicas at the tier every 30 s
DELETING: Final = {
    "retention_hours": "0",
    "delete_hours": ";".join(f"{hour:02}" for hour in range(24)),
}


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    return {
        "segment_bytes": str(SEGMENT_SIZE),
        "tier_url": str(tmp_path / "tier"),
        "tier_upload_rate_max": str(1024**2),
        **DELETING,
    }


class Sent:
    """Messages of one queue, in their order."""

    def __init__(self, group: GroupOfProcesses) -> None:
        self._group = group
        self.bodies: list[str] = []

    def send(self, count: int) -> None:
        """Send messages to the master; each is acknowledged."""
        for _ in range(count):
            body = f"{len(self.bodies):04} {BODY}"
            wait_until(partial(self._is_stored, body))
            self.bodies.append(body)

    def _is_stored(self, body: str) -> bool:
        return self._group.send(body, queue_id=0).status_code == 201

    def are_read(self, replica_id: int) -> bool:
        """Tell whether a replica has all of them, from offset 0 on; one may be there twice."""
        status = self._group.request("GET", replica_id, "/v1/status").json()
        if status["tier"]["min_offset"] != 0:
            return False
        found = self._group.bodies(replica_id)
        return sorted(set(found)) == self.bodies


def upload_of(tier: Path) -> Path | None:
    """Return an object that is being written."""
    return next(tier.glob("*/*/*/segments/*.log.*.unfinished"), None)


def latest(tier: Path) -> Manifest:
    """Return the latest manifest, whose objects are whole."""
    [folder] = tier.glob("*/*/*/manifests")
    path = max(folder.glob("*.json"))
    number = number_of(f"manifests/{path.name}")
    manifest = decoded(path.read_bytes(), number=number, log_id=folder.parent.name)
    for segment in manifest.segments:
        sizes = [(folder.parent / path).stat().st_size for path in segment.paths]
        assert sizes == [segment.end - segment.base, segment.side_size]
    return manifest


def await_only_in_tier(group: GroupOfProcesses) -> int:
    """Return the master's id once most of its log is only in the tier.

    A busy machine may have elected another one meanwhile.
    """

    def master() -> int | None:
        found = group.await_master()
        status = group.request("GET", found, "/v1/status").json()
        log, tier = status["log"], status["tier"]
        is_tiered = log["max_offset"] - (tier["max_offset"] or 0) <= SEGMENT_SIZE
        few = log["max_offset"] - log["min_offset"] <= 2 * SEGMENT_SIZE
        return found if is_tiered and few and log["min_offset"] >= 2 * SEGMENT_SIZE else None

    return wait_until(master, within_seconds=SLOW_SECONDS)


def test_a_master_killed_in_an_upload_is_followed_by_one_that_goes_on(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    tier = tmp_path / "tier"
    settings["replica_keep_bytes"] = "0"  # else the killed one keeps the log on the others' disks
    with group_of(tmp_path, 1, 2, 3, **settings) as group:
        sent = Sent(group)
        sent.send(2 * IN_SEGMENT)
        master = group.await_master(copies=3)
        wait_until(lambda: upload_of(tier))
        group.kill(master)
        group.await_master(other_than=master)
        sent.send(2 * IN_SEGMENT)

        second = await_only_in_tier(group)
        assert sent.are_read(second)
        manifest = latest(tier)
        assert manifest.abandoned == []
        assert manifest.segments[0].epoch < manifest.segments[-1].epoch
        assert upload_of(tier) is None, "what the killed one left is deleted"

        # A replica whose disk was lost joins a master that has only the last segments.
        shutil.rmtree(group.store_of(master))
        group.start(master, **settings)
        group.await_master(copies=3)
        wait_until(lambda: sent.are_read(master), within_seconds=SLOW_SECONDS)
        status = group.request("GET", master, "/v1/status").json()
        assert status["log"]["min_offset"] >= 2 * SEGMENT_SIZE


def manifests(tier: Path) -> set[str]:
    """Return the names of all manifests; their writer empties those that are overtaken."""
    [folder] = tier.glob("*/*/*/manifests")
    return {path.name for path in folder.glob("*.json")}


def test_a_master_that_wakes_up_after_an_election_writes_no_manifest(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    """It was suspended amid an upload, and takes itself for the master for a moment."""
    tier = tmp_path / "tier"
    with group_of(tmp_path, 1, 2, 3, **settings) as group:
        sent = Sent(group)
        sent.send(2 * IN_SEGMENT)
        old = group.await_master(copies=3)
        wait_until(lambda: upload_of(tier))
        suspended = group.replicas.pop(old)  # nobody waits for its answers
        os.kill(suspended.pid, signal.SIGSTOP)
        try:
            new = group.await_master()
            sent.send(2 * IN_SEGMENT)

            def is_up_to_date() -> bool:
                status = group.request("GET", new, "/v1/status").json()["tier"]
                is_written = latest(tier).epoch == group.row()["epoch"]
                return is_written and not status["behind_bytes"] and status["failure"] is None

            wait_until(is_up_to_date, within_seconds=SLOW_SECONDS)
            before, known = manifests(tier), latest(tier)
        finally:
            os.kill(suspended.pid, signal.SIGCONT)
            group.replicas[old] = suspended

        def follows_and_reads_the_tier() -> bool:
            status = group.status(old)
            if status is None or status["following"] is None:
                return False
            shown = group.request("GET", old, "/v1/status").json()
            state = status["following"]["state"]
            return bool(state == "following" and shown["tier"]["manifest"] == known.number)

        wait_until(follows_and_reads_the_tier, within_seconds=SLOW_SECONDS)
        assert group.master() == new, "else another one may write"
        assert manifests(tier) == before
        assert latest(tier) == known
        assert known.abandoned == []
        wait_until(lambda: sent.are_read(old), within_seconds=SLOW_SECONDS)


def test_a_new_replica_copies_closed_segments_from_the_tier(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    settings |= {"retention_hours": "72", "tier_upload_rate_max": "0"}
    with group_of(tmp_path, 1, 2, **settings) as group:
        sent = Sent(group)
        sent.send(8 * IN_SEGMENT)
        master = group.await_master(copies=2)

        def is_tiered() -> bool:
            status = group.request("GET", master, "/v1/status").json()
            return int(status["tier"]["max_offset"] or 0) >= 6 * SEGMENT_SIZE

        def copied() -> int:
            status = group.status(3)
            following = None if status is None else status["following"]
            return 0 if following is None else following["tier_bytes"]

        wait_until(is_tiered, within_seconds=SLOW_SECONDS)
        group.start(3, **settings)
        wait_until(copied)
        group.kill(3)  # perhaps amid a run
        group.start(3, **settings)
        group.await_master(copies=3)

        wait_until(lambda: sent.are_read(3), within_seconds=SLOW_SECONDS)
        logs = [
            b"".join(
                path.read_bytes()
                for path in sorted((group.store_of(number) / "commitlog").iterdir())[:6]
            )
            for number in (master, 3)
        ]
        assert logs[0] == logs[1]
