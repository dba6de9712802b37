"""``eruca broker``, against a controller of its own and replicas that report what a test says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from eruca.contract.broker_groups import BrokerGroupPut
from support.command_line import Eruca
from support.forked import forked
from support.group_rows import group, name, status
from support.scripted_replicas import ScriptedReplica, scripted_replica


class World:
    """A group of three replicas at a controller, of which a test says how they are."""

    def __init__(self, controller_url: str, replicas: Sequence[ScriptedReplica]) -> None:
        self.replicas = dict(enumerate(replicas, 1))
        self.eruca = Eruca("http://127.0.0.1:1")  # no name server is needed
        self.eruca.environment["ERUCA_CONTROLLER_URLS"] = controller_url
        self._row = f"{controller_url}/v1/broker-groups/broker-a"

    def put(self, *, epoch: int = 7, master: int = 1, in_sync: Sequence[int] = (1, 2)) -> None:
        """Write the row, whatever it is now, as a replica would."""
        row = group(epoch=epoch, master=master, in_sync=in_sync)
        fields = row.model_dump(exclude={"broker_name", "version", "number", "changed_at"})
        put = BrokerGroupPut.model_validate(fields)
        replicas = [
            one.model_copy(update={"urls": {"default": self.replicas[one.replica_id].url}})
            for one in put.replicas
        ]
        etag = httpx.get(self._row, trust_env=False).headers.get("etag")
        headers = {"if-none-match": "*"} if etag is None else {"if-match": etag}
        body = put.model_copy(update={"replicas": replicas}).model_dump_json()
        headers["content-type"] = "application/json"
        httpx.put(self._row, content=body, headers=headers, trust_env=False).raise_for_status()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    settings = {
        "ERUCA_CONTROLLER_PORT": "0",
        "ERUCA_CONTROLLER_STORE": "file",
        "ERUCA_CONTROLLER_FILE": str(tmp_path / "groups.json"),
    }
    with ExitStack() as stack:
        controller = stack.enter_context(forked("eruca_controller", settings))
        statuses = (status(1, role="master"), status(2), status(3, end=600))
        replicas = [stack.enter_context(scripted_replica(one)) for one in statuses]
        yield World(controller.url, replicas)


def test_a_group_is_shown_with_its_replicas(world: World) -> None:
    world.put()

    shown = world.eruca("broker", "show", "broker-a").stdout

    lines = [line.split() for line in shown.splitlines()]
    assert ["in", "sync", "1,", "2;", "sends", "need", "1"] in lines
    rows = {line[0]: line[1] for line in lines if line and line[0].isdecimal()}
    assert rows == {"1": "master", "2": "standby", "3": "learner"}
    assert world.eruca.json("broker", "show", "broker-a")["epoch"] == 7


def test_a_group_that_the_arbiter_does_not_know_is_an_error(world: World) -> None:
    assert "broker-x" in world.eruca("broker", "show", "broker-x", code=1).stderr


def test_a_hand_over_returns_once_the_next_term_begins(world: World) -> None:
    world.put()
    told = []

    def hand_over(body: dict[str, object]) -> dict[str, object]:
        told.append(body)
        world.put(epoch=8, master=2)  # it is appointed, and takes a term of its own
        world.put(epoch=9, master=2)
        world.replicas[2].status = status(2, role="master", epoch=9)
        return {"epoch": 8, "master": name(2).model_dump(), "master_urls": {}}

    world.replicas[1].on_switch = hand_over

    done = world.eruca("broker", "switch", "broker-a", "--to", "2")

    assert told == [{"to": 2}]
    assert "broker-a: replica 2 is the master of epoch 9" in done.stderr


@pytest.mark.parametrize(
    ("to", "refusal"),
    [
        ("3", "replica 3 of broker-a is not in sync"),
        ("9", "broker-a has no replica 9. To fix it: its replicas: 1, 2, 3"),
        ("1", "replica 1 is the master of broker-a already"),
    ],
)
def test_a_hand_over_that_is_impossible_is_refused_at_once(
    world: World, to: str, refusal: str
) -> None:
    world.put()

    assert refusal in world.eruca("broker", "switch", "broker-a", "--to", to, code=1).stderr


def test_a_stopped_replica_is_removed(world: World) -> None:
    world.put()
    remove = ("broker", "remove-replica", "broker-a", "--replica", "2", "--yes")
    assert "still runs" in world.eruca(*remove, code=1).stderr
    world.replicas[2].status = None

    world.eruca(*remove)

    row = world.eruca.json("broker", "show", "broker-a")
    assert row["in_sync"] == [name(1).model_dump()]
    assert [replica["replica_id"] for replica in row["replicas"]] == [1, 3]


def test_a_lossy_election_says_what_is_lost_and_needs_consent(world: World) -> None:
    world.put()
    world.replicas[1].status = world.replicas[2].status = None
    elect = ("broker", "elect", "broker-a", "--replica", "3")

    asked = world.eruca(*elect, code=2).stderr
    done = world.eruca(*elect, "--accept-loss", "--yes")

    for told in (asked, done.stderr):
        assert "400 bytes of confirmed" in " ".join(told.replace("│", " ").split())
    row = world.eruca.json("broker", "show", "broker-a")
    assert (row["epoch"], row["master"], row["unclean"]) == (8, name(3).model_dump(), True)


def test_a_row_that_went_back_in_time_is_raised_rule_13(world: World) -> None:
    world.put(epoch=3, master=3, in_sync=(3,))
    members = [name(1), name(2)]
    world.replicas[1].status = status(1, role="master", in_sync=members)

    world.eruca("broker", "repair-arbiter", "broker-a", "--yes")

    row = world.eruca.json("broker", "show", "broker-a")
    assert (row["epoch"], row["master"]) == (8, name(1).model_dump())
    assert row["in_sync"] == [member.model_dump() for member in members]
    again = world.eruca("broker", "repair-arbiter", "broker-a", "--yes", code=1).stderr
    assert "the arbiter is not behind" in again


def test_the_second_one_changes_nothing_and_is_shown_the_new_row(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put()
    world.replicas[2].status = None

    async def be_first(_question: str) -> bool:
        world.put(epoch=8, in_sync=(1, 2))
        return True

    monkeypatch.setattr("eruca.cli.commands.broker.confirmed", be_first)

    refused = world.eruca("broker", "remove-replica", "broker-a", "--replica", "2", code=1).stderr

    assert "somebody else has changed broker-a first" in refused
    assert "now its epoch is 8, its master 1, in sync: 1, 2" in refused
    assert len(world.eruca.json("broker", "show", "broker-a")["in_sync"]) == 2


def test_the_history_tells_who_became_master_and_why(world: World) -> None:
    world.put()
    world.put(epoch=8, master=2)

    changes = world.eruca.json("broker", "history", "broker-a")

    assert [(change["kind"], change["epoch"]) for change in changes] == [
        ("changed", 8),
        ("created", 7),
    ]
    shown = world.eruca("broker", "history", "broker-a", "--count", "1").stdout
    assert len(shown.splitlines()) == 2
    assert "replica 2 has caught up" in shown


def test_a_new_replica_is_told_its_settings_and_watched_until_it_is_in_sync(
    world: World,
) -> None:
    world.put(in_sync=(1, 2, 3))

    told = world.eruca("broker", "add-replica", "broker-a", "--no-wait").stderr
    watched = world.eruca("broker", "add-replica", "broker-a", "--replica", "3").stderr

    assert "export ERUCA_BROKER_REPLICA_ID='4'" in told
    assert "replica 3 of broker-a is in sync" in watched


def test_controllers_that_do_not_answer_are_told_with_a_fix(world: World) -> None:
    nobody = "http://127.0.0.1:1"

    refused = world.eruca("broker", "show", "broker-a", "--controller", nobody, code=1).stderr

    assert "start a controller, or name one that runs in --controller" in refused


# --- List, from a name server ---------------------------------------------------------------------


def register(
    name_server: str, broker_id: int, role: str, url: str, *, epoch: int = 7, name: str = "broker-a"
) -> None:
    answer = httpx.put(
        f"{name_server}/v1/brokers/{name}/{broker_id}",
        json={
            "cluster": "c",
            "urls": {"default": url},
            "store_host": f"10.0.0.{broker_id + 1}:{1 if name == 'broker-a' else 2}",
            "data_version": 1,
            "epoch": epoch,
            "role": role,
            "replica_id": broker_id or 1,
        },
        trust_env=False,
    )
    answer.raise_for_status()


def test_every_broker_is_listed_with_its_replicas(name_server: str) -> None:
    with (
        scripted_replica(status(1, role="master")) as master,
        scripted_replica(status(2, end=990)) as standby,
        scripted_replica(status(3, end=600)) as learner,
    ):
        register(name_server, 0, "master", master.url)
        register(name_server, 2, "standby", standby.url)
        register(name_server, 3, "learner", learner.url)
        eruca = Eruca(name_server)

        shown = eruca("broker", "list").stdout
        listed = eruca.json("broker", "list")

    rows = [line.split() for line in shown.splitlines()[1:]]
    assert rows == [
        ["broker-a", "1", "master", "7", "1000", "0", "yes", "none"],
        ["broker-a", "2", "standby", "7", "990", "10", "yes", "none"],
        ["broker-a", "3", "learner", "7", "600", "400", "no", "none"],
    ]
    assert [(one["replica"], one["in_sync"], one["behind"]) for one in listed] == [
        (1, True, 0),
        (2, True, 10),
        (3, False, 400),
    ]
    assert {one["problem"] for one in listed} == {None}


def test_a_replica_that_does_not_answer_and_a_broker_without_a_master_are_failures(
    name_server: str,
) -> None:
    with scripted_replica(status(2)) as standby:
        register(name_server, 2, "standby", standby.url)
        register(name_server, 0, "master", "http://127.0.0.1:1", name="broker-b")
        eruca = Eruca(name_server)

        failed = eruca("broker", "list", "--output=json", code=1)

    assert "broker broker-a has no master now" in failed.stderr
    standby_row, lost = json.loads(failed.stdout)
    assert (standby_row["broker"], standby_row["role"], standby_row["problem"]) == (
        "broker-a",
        "standby",
        None,
    )
    assert (lost["broker"], lost["end"], lost["behind"]) == ("broker-b", None, None)
    assert "http://127.0.0.1:1" in lost["problem"]
