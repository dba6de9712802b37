"""A replica whose durable records are damaged copies them again, if another one is the master."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from eruca_chassis.running.serving import START_EXIT_CODE
from support.broker_groups import GroupOfProcesses, group_of
from support.forked import forked_to_the_end
from support.waiting import wait_until

AT_ONCE: Final = {"recovery_wait_seconds": "1"}


def damaged(store: Path, body: bytes) -> None:
    """Flip a bit of a message, in a store that is not open."""
    [path] = (store / "commitlog").iterdir()
    content = path.read_bytes()
    at = content.index(body)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([content[at] ^ 1]))


def flushed(group: GroupOfProcesses, replica_id: int) -> dict[str, Any]:
    """Let a replica close its store in order, run again, and be killed; return its status.

    By then a checkpoint says that everything is flushed, and the next start walks the log's end.
    """
    group.stop(replica_id)
    group.start(replica_id)
    group.await_master(copies=2)
    status = group.status(replica_id)
    assert status is not None
    group.kill(replica_id)
    return status


def test_a_replica_copies_damaged_records_again_from_the_master(tmp_path: Path) -> None:
    """Rules 8 and 11: it is another member until it has everything again."""
    with group_of(tmp_path, 1, 2) as group:
        sent = [f"message-{number}" for number in range(30)]
        for body in sent:
            assert group.send(body, at=1).status_code == 201
        before = flushed(group, 2)
        damaged(group.store_of(2), b"message-7")

        group.start(2)

        after = group.status(2)
        assert after is not None
        assert after["uid"] != before["uid"]
        assert before["uid"] in after["former_uids"]
        second = {"replica_id": 2, "uid": after["uid"]}
        wait_until(lambda: group.row()["in_sync"][1:] == [second])
        wait_until(lambda: group.bodies(2) == sorted(sent))
        assert group.bodies(1) == sorted(sent)


def test_without_another_master_its_operator_decides(tmp_path: Path) -> None:
    """Rule 11: perhaps nobody else has what follows the damage."""
    with group_of(tmp_path, 1, 2, **AT_ONCE) as group:
        assert group.send("message", at=1).status_code == 201
        flushed(group, 2)
        group.kill(1)
        damaged(group.store_of(2), b"message")
        [path] = (group.store_of(2) / "commitlog").iterdir()
        content = path.read_bytes()

        code, text = forked_to_the_end("eruca_broker", group.settings_of(2, **AT_ONCE))

        assert code == START_EXIT_CODE
        assert "start once with ERUCA_BROKER_CUT_DAMAGE=true" in text
        assert path.read_bytes() == content
        assert group.row()["in_sync"][-1]["replica_id"] == 2
