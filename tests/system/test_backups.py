"""``eruca backup`` and ``eruca restore`` with real brokers: while they serve, killed, damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from support.broker_groups import GROUP, group_of
from support.command_line import Eruca
from support.forked import forked_broker
from support.waiting import wait_until

SEGMENT_SIZE: Final = 1024**2
BODY: Final = "x" * 100_000


@pytest.fixture
def eruca(name_server: str) -> Eruca:
    return Eruca(name_server)


@pytest.fixture
def repository(tmp_path: Path) -> str:
    return f"--repository={tmp_path / 'backups'}"


def settings_of(name_server: str, store: Path) -> dict[str, str]:
    return {
        "ERUCA_BROKER_NAME": GROUP,
        "ERUCA_BROKER_PORT": "0",
        "ERUCA_BROKER_NAMESRV_URLS": name_server,
        "ERUCA_BROKER_STORE_DIR": str(store),
        "ERUCA_BROKER_SEGMENT_BYTES": str(SEGMENT_SIZE),
    }


@contextmanager
def serving(name_server: str, store: Path) -> Iterator[httpx.Client]:
    with (
        forked_broker(settings_of(name_server, store)) as process,
        httpx.Client(base_url=f"{process.url}/v1") as client,
    ):
        wait_until(lambda: httpx.get(f"{process.url}/readyz").is_success)
        wait_until(lambda: process.url in httpx.get(f"{name_server}/v1/brokers").text)
        yield client


def send(client: httpx.Client, count: int, body: str = BODY, **more: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    messages = (
        {"body": {"text": f"{number}:{body}"}, "keys": [f"k{number}"], **more}
        for number in range(count)
    )
    return [post(client, "/topics/orders/messages", message) for message in messages]


def post(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.is_success, answer.text
    document: dict[str, Any] = answer.json() if answer.content else {}
    return document


def life(client: httpx.Client) -> None:
    """Leave something of every kind that a log must bring back."""
    send(client, 30)
    send(client, 3, "later", delay_seconds=3_600)
    lease = {"topic": "orders", "count_max": 4, "start": "earliest", "invisible_seconds": 600}
    leased = post(client, "/groups/billing/deliveries", lease)
    handles = [one["handle"] for one in leased["deliveries"]]
    post(client, "/groups/billing/deliveries:ack", {"handles": handles[:2]})
    half = {"topic": "orders", "producer_group": "shop", "message": {"body": {"text": "half"}}}
    post(client, "/transactions", half)


def answers(client: httpx.Client) -> dict[str, Any]:
    """Return everything that a client can ask a broker about its messages and its state."""
    found: dict[str, Any] = {}
    for path in ("/topics", "/groups", "/groups/billing/offsets", "/scheduled", "/transactions"):
        found[path] = client.get(path).raise_for_status().json()
    for since_the_start in ("traffic", "traffic_since"):
        del found["/groups/billing/offsets"][since_the_start]
    queues = client.get("/topics/orders/queues").raise_for_status().json()["queues"]
    for queue in queues:
        path = f"/topics/orders/queues/{queue['queue_id']}/messages?offset=0&count_max=32"
        found[path] = client.get(path).raise_for_status().json()
    return found


def test_a_restored_broker_has_everything_of_the_backup(
    tmp_path: Path, name_server: str, eruca: Eruca, repository: str
) -> None:
    with serving(name_server, tmp_path / "store") as client:
        life(client)
        made = eruca.json("backup", "create", GROUP, repository)
        then = answers(client)
        send(client, 5)

    restored = eruca.json("restore", GROUP, repository, f"--to={tmp_path / 'restored'}")

    assert restored["end_offset"] == made["end_offset"]
    with serving(name_server, tmp_path / "restored") as client:
        assert answers(client) == then


def pieces_in(tmp_path: Path) -> set[str]:
    found = (tmp_path / "backups").glob("broker-a/log/*/*")
    return {path.name for path in found if not path.name.endswith(".unfinished")}


def test_a_killed_backup_goes_on_where_it_ended(
    tmp_path: Path, name_server: str, eruca: Eruca, repository: str
) -> None:
    with serving(name_server, tmp_path / "store") as client:
        send(client, 200)
        with eruca.start("backup", "create", GROUP, repository) as process:
            wait_until(lambda: len(pieces_in(tmp_path)) > 2 or process.poll() is not None)
            process.kill()
        copied = pieces_in(tmp_path)

        made = eruca.json("backup", "create", GROUP, repository)
        again = eruca.json("backup", "create", GROUP, repository)

    assert copied <= pieces_in(tmp_path)
    assert made["pieces"] == len(pieces_in(tmp_path))
    assert made["copied_bytes"] < made["bytes"]
    assert again["copied_bytes"] == 0
    assert eruca.json("backup", "verify", GROUP, repository) == [
        {"number": made["number"], "faults": []},
        {"number": again["number"], "faults": []},
    ]
    listed = eruca.json("backup", "list", GROUP, repository)
    assert [one["number"] for one in listed] == [made["number"], again["number"]]


def test_a_backup_of_a_damaged_log_is_refused_and_earlier_ones_stay(
    tmp_path: Path, name_server: str, eruca: Eruca, repository: str
) -> None:
    store = tmp_path / "store"
    with serving(name_server, store) as client:
        receipt = send(client, 1, "marked")[0]
        eruca("backup", "create", GROUP, repository)
        send(client, 1, "rotten")
        data = (store / "commitlog" / f"{0:020d}").read_bytes()
        place = data.index(b"0:rotten")
        with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
            os.pwrite(file.fileno(), b"1", place)

        refused = eruca("backup", "create", GROUP, repository, code=1)

    assert "is damaged, and a backup never has a damaged record" in refused.stderr
    assert len(eruca.json("backup", "list", GROUP, repository)) == 1
    assert receipt["queue_offset"] == 0


def test_what_is_wrong_with_a_backup_is_said(
    tmp_path: Path, name_server: str, eruca: Eruca, repository: str
) -> None:
    assert "has no backup" in eruca("backup", "verify", GROUP, repository, code=1).stderr
    assert "has no backup" in eruca("restore", GROUP, repository, "--to=x", code=1).stderr
    with serving(name_server, tmp_path / "store") as client:
        send(client, 1)
        eruca("backup", "create", GROUP, repository)
    (piece,) = (tmp_path / "backups").glob("broker-a/log/*/*")
    piece.write_bytes(piece.read_bytes()[:-1] + b"\0")

    told = eruca("backup", "verify", GROUP, repository, code=1)
    assert "its bytes do not match their SHA-256" in told.stdout
    assert "ok" in eruca("backup", "verify", GROUP, repository, "--quick").stdout
    refused = eruca("restore", GROUP, repository, f"--to={tmp_path / 'new'}", code=1)
    assert "the backup is damaged" in refused.stderr
    assert (
        "has no backup 7"
        in eruca(
            "restore", GROUP, repository, f"--to={tmp_path / 'new'}", "--number=7", code=1
        ).stderr
    )
    assert eruca("restore", GROUP, repository, "--to=x", "--until=noon", code=2)
    in_file = eruca("restore", GROUP, repository, f"--to={piece}", code=1)
    assert "is not a directory" in in_file.stderr


def test_an_invalid_manifest_hides_no_other_backup(
    tmp_path: Path, name_server: str, eruca: Eruca, repository: str
) -> None:
    with serving(name_server, tmp_path / "store") as client:
        send(client, 1, "small")
        eruca("backup", "create", GROUP, repository)
        eruca("backup", "create", GROUP, repository)
    first = tmp_path / "backups" / GROUP / "backups" / "00000001.json"
    first.write_bytes(first.read_bytes()[:-9])

    listed = eruca("backup", "list", GROUP, repository, "--output=json", code=1)
    verified = eruca("backup", "verify", GROUP, repository, code=1)

    assert [one["number"] for one in json.loads(listed.stdout)] == [2]
    assert "00000001.json is invalid" in listed.stderr
    assert "backup 1: 1 fault" in verified.stdout
    assert "backup 2: ok" in verified.stdout
    eruca("restore", GROUP, repository, f"--to={tmp_path / 'restored'}")


def test_a_standby_serves_the_backup_and_a_restored_store_is_a_new_member(
    tmp_path: Path, name_server: str, eruca: Eruca, repository: str
) -> None:
    more = {"namesrv_urls": name_server, "heartbeat_seconds": "0.5"}
    with group_of(tmp_path, 1, 2, **more) as group:
        master = group.await_master(copies=2)
        standby = 3 - master
        for number in range(20):
            assert group.send(f"{number}").status_code == 201
        standbys = '"role":"standby"'
        wait_until(lambda: standbys in httpx.get(f"{name_server}/v1/brokers").text)

        made = eruca.json("backup", "create", GROUP, repository)

        read = 'route="/v1/log"'
        assert read in httpx.get(f"{group.url(standby)}/metrics").text
        group.stop(standby)
        eruca("restore", GROUP, repository, f"--to={tmp_path / 'restored'}")
        assert not (tmp_path / "restored" / "config" / "replica.json").exists()
        before = group.row()["in_sync"]
        group.store_of(standby).rename(tmp_path / "lost")
        (tmp_path / "restored").rename(group.store_of(standby))
        group.send("since")
        group.start(standby, namesrv_urls=name_server, heartbeat_seconds="0.5")
        group.await_master(copies=2)
        assert group.row()["in_sync"] != before
        wait_until(lambda: "since" in group.bodies(standby))
        assert sorted(group.bodies(standby)) == sorted(group.bodies(master))
    assert made["epoch"] == 1
