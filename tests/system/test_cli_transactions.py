"""Transactions and delayed messages from the command line, against a cluster of two brokers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import httpx
import pytest

import eruca
from eruca_testing import RunningCluster
from support.command_line import Eruca


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with RunningCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def command(cluster: RunningCluster) -> Eruca:
    return Eruca(cluster.namesrv_urls[0])


def begun(cluster: RunningCluster, topic: str, *bodies: str, group: str) -> list[str]:
    """Begin transactions that are left undecided, each on the next broker; return their ids."""
    ids = []
    with (
        eruca.Client(cluster.namesrv_urls) as client,
        client.transaction_producer(group) as producer,
    ):
        client.admin.create_topic(topic, queue_count=1)
        for number, body in enumerate(bodies):
            queue = eruca.MessageQueue(topic, f"broker-{'ab'[number % 2]}", 0)
            result = producer.send_in_transaction(
                eruca.Message(topic, body, keys="order-7"),
                lambda _half: "unknown",
                queue=queue,
                check_immunity_seconds=0,
            )
            ids.append(result.transaction_id)
    return ids


def park(cluster: RunningCluster, broker_name: str, transaction_id: str) -> None:
    """Give a transaction up, as the checker would."""
    url = f"{cluster.broker_urls[broker_name]}/v1/transactions/{transaction_id}:expire"
    with httpx.Client(trust_env=False) as http:
        http.post(url, json={"checks": 0, "checker": "a-test"}).raise_for_status()


def test_undecided_transactions_are_listed(cluster: RunningCluster, command: Eruca) -> None:
    ids = begun(cluster, "t-list", "1", "2", "3", group="g-list")
    park(cluster, "broker-b", ids[1])

    everything = command.json("txn", "list", "--group=g-list")
    parked = command.json("txn", "list", "--group=g-list", "--state=parked")
    at_a = command.json("txn", "list", "-g", "g-list", "--broker=broker-a")
    shown = command("txn", "list", "-g", "g-list").stdout.splitlines()
    some = command("txn", "list", "-g", "g-list", "-n2")

    assert {t["transaction_id"]: t["state"] for t in everything} == {
        ids[0]: "pending",
        ids[1]: "parked",
        ids[2]: "pending",
    }
    assert [t["transaction_id"] for t in parked] == [ids[1]]
    assert {t["transaction_id"] for t in at_a} == {ids[0], ids[2]}
    assert len(shown) == 4
    assert shown[0].split()[:3] == ["transaction", "state", "group"]
    assert "there are more than 2" in some.stderr
    nobodys = command("txn", "list", "--group=nobodys")
    assert (nobodys.stdout, nobodys.stderr) == ("", "no transactions\n")


def test_a_transaction_is_shown_with_its_history(cluster: RunningCluster, command: Eruca) -> None:
    [transaction_id] = begun(cluster, "t-show", "the body", group="g-show")
    park(cluster, "broker-a", transaction_id)
    command("txn", "commit", transaction_id, "--reason=the order is there")

    document = command.json("txn", "show", transaction_id)
    shown = command("txn", "show", transaction_id).stdout

    assert document["state"] == "committed"
    assert [entry["event"] for entry in document["history"]] == ["begun", "parked", "committed"]
    for part in ("committed", "g-show", "t-show/0@0", "operator", "the order is there", "order-7"):
        assert part in shown
    assert shown.rstrip().endswith("the body")
    offsets = {entry["event"]: entry["log_offset"] for entry in document["history"]}

    def state_at(log_offset: int) -> str:
        return command("txn", "show", transaction_id, f"--at=broker-a:{log_offset}").stdout

    assert state_at(offsets["begun"]) == "not begun\n"
    assert state_at(offsets["parked"]).startswith("pending")
    assert state_at(offsets["committed"]).startswith("parked")
    assert state_at(offsets["committed"] + 1).startswith("committed")
    assert "BROKER:OFFSET" in command("txn", "show", transaction_id, "--at=7", code=2).output


def test_an_operator_commits_or_discards_with_a_reason(
    cluster: RunningCluster, command: Eruca
) -> None:
    wanted, unwanted = begun(cluster, "t-decide", "wanted", "unwanted", group="g-decide")
    for broker_name, transaction_id in (("broker-a", wanted), ("broker-b", unwanted)):
        park(cluster, broker_name, transaction_id)

    without_reason = command("txn", "commit", wanted, code=2)
    committed = command("txn", "commit", wanted, "-r", "found in the database").stdout
    again = command("txn", "commit", wanted, "-r", "once more").stdout
    discarded = command.json("txn", "rollback", unwanted, "--reason=a duplicate")
    refused = command("txn", "commit", unwanted, "-r", "after all", code=1)
    unknown = command("txn", "rollback", "no-such-id", "-r", "gone", code=1)

    assert "--reason" in without_reason.stderr
    assert committed == f"{wanted} committed: t-decide/0 at 0\n"
    assert again.startswith(f"{wanted} committed, as decided at ")
    assert (discarded["state"], discarded["by"]) == ("rolled_back", "operator")
    assert "was rolled back by an operator" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert "'no-such-id' is unknown to every broker" in unknown.stderr
    assert command.bodies("t-decide") == ["wanted"]


def test_what_is_sent_with_a_delay_is_listed_and_can_be_recalled(command: Eruca) -> None:
    command("topic", "create", "t-later", "--queue-count=1")
    [first] = command.json("send", "-t", "t-later", "in an hour", "--delay=1h")
    command("send", "-t", "t-later", "at once")
    command.piped("a\nb\n", "send", "-t", "t-later", "--delay=30m")
    late = command("send", "-t", "t-later", "too late", "--delay=4000d", code=1)
    nonsense = command("send", "-t", "t-later", "x", "--delay=soon", code=2)

    listed = command.json("scheduled", "list", "--topic=t-later")
    shown = command("scheduled", "list", "-t", "t-later").stdout.splitlines()
    some = command("scheduled", "list", "-t", "t-later", "-n1")
    bare = command("scheduled", "recall", first["message_id"], code=1)
    recalled = command("scheduled", "recall", first["recall_handle"]).stdout
    left = command.json("scheduled", "list", "-t", "t-later")
    unknown = command("scheduled", "recall", "no-such-id", code=1)

    assert first["queue_offset"] is None
    delay = datetime.fromisoformat(first["deliver_at"]) - datetime.fromisoformat(first["stored_at"])
    assert abs(delay - timedelta(hours=1)) <= timedelta(milliseconds=2)
    assert len(listed) == len(shown) - 1 == 3
    assert listed[-1]["message_id"] == first["message_id"]
    assert "there are more than 1" in some.stderr
    assert listed[-1]["recall_handle"] == first["recall_handle"]
    assert first["recall_handle"] in bare.stderr
    assert len(bare.stderr.splitlines()) == 1
    assert first["message_id"] in recalled
    assert len(left) == 2
    assert "delay" in late.stderr
    assert "expected a span" in nonsense.stderr
    assert "no broker has a scheduled message with this id" in unknown.stderr
    assert command.bodies("t-later") == ["at once"]
