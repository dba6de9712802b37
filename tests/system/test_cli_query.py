"""``eruca query`` and ``eruca timeline``, against a cluster of two brokers and a query service."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

import eruca
from eruca.cli.app import app
from eruca.contract.groups import CustomizedRetryPolicy
from eruca_testing import RunningCluster
from support.command_line import Eruca
from support.waiting import until_next_millisecond


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with RunningCluster(brokers=2, queries=1) as cluster:
        yield cluster


@pytest.fixture
def command(cluster: RunningCluster) -> Eruca:
    return Eruca(cluster.namesrv_urls[0])


def sent(cluster: RunningCluster, topic: str, count: int) -> list[eruca.SendResult]:
    """Send messages with two keys and a tag to both brokers, each in a millisecond of its own."""
    results = []
    with eruca.Client(cluster.namesrv_urls) as client, client.producer() as producer:
        client.admin.create_topic(topic, queue_count=1)
        for n in range(count):
            result = producer.send(
                eruca.Message(topic, f"body {n}", tag="UA", keys=[f"k{n}", "all"]),
                queue=eruca.MessageQueue(topic, f"broker-{'ab'[n % 2]}", 0),
            )
            results.append(result)
            until_next_millisecond()
    return results


def failing(cluster: RunningCluster, topic: str, group: str) -> str:
    """Have a group fail on a message until it is dead; return the message's id."""
    with eruca.Client(cluster.namesrv_urls) as client, client.producer() as producer:
        client.admin.create_topic(topic, queue_count=1)
        policy = CustomizedRetryPolicy(delays_seconds=[0])
        client.admin.groups.create(group, start="earliest", retries_max=1, retry_policy=policy)
        result = producer.send(eruca.Message(topic, "poison", tag="bad", keys=["order-7"]))
        consumer = client.push_consumer(group)

        @consumer.on(topic)
        def fail(message: eruca.ReceivedMessage) -> None:
            raise ValueError("no such\ncarrier")

        with consumer:
            while not list(client.admin.groups.dead_letters(group)):
                pass  # each look is a request
    return result.message_id


def test_a_message_is_shown_by_either_id_with_its_body(
    cluster: RunningCluster, command: Eruca
) -> None:
    [result] = sent(cluster, "t-id", 1)

    shown = command("query", "id", result.message_id).stdout
    by_offset = command("query", "id", result.offset_message_id).stdout
    document = command.json("query", "id", result.message_id)

    assert shown == by_offset
    assert command("query", "id", result.message_id, "--raw").stdout == "body 0"
    for part in (result.message_id, result.offset_message_id, "t-id/0@0", "UA", "k0 all"):
        assert part in shown
    assert shown.endswith("\nbody 0\n")
    assert document["message"]["body"] == {"text": "body 0"}
    assert {its["broker_name"] for its in document["read_model"]} == {"broker-a", "broker-b"}
    assert document["incomplete"] == []


def test_messages_are_found_by_key_and_by_time_the_newest_first(
    cluster: RunningCluster, command: Eruca
) -> None:
    results = sent(cluster, "t-find", 5)
    newest_first = [result.message_id for result in reversed(results)]

    by_key = command.json("query", "key", "all", "-t", "t-find")
    one = command("query", "key", "k3", "--topic=t-find", "--bodies").stdout.splitlines()
    by_time = command.json("query", "time", "-t", "t-find", "--since=1h")
    before = command("query", "time", "-t", "t-find", "--until=1h")
    by_tag = command("query", "time", "-t", "t-find", "--tag=AA")

    for page in (by_key, by_time):
        assert [message["message_id"] for message in page["messages"]] == newest_first
        assert page["next_cursor"] is None
    assert one[0].split()[-1] == "body"
    assert len(one) == 2
    assert results[3].message_id in one[1]
    assert one[1].endswith("body 3")
    for nothing in (before, by_tag):
        assert nothing.stdout == ""
        assert nothing.stderr == "no message found\n"


def test_more_than_asked_for_is_said_and_can_be_had(
    cluster: RunningCluster, command: Eruca
) -> None:
    results = sent(cluster, "t-more", 5)

    some = command("query", "time", "-t", "t-more", "-n2")
    first = command.json("query", "time", "-t", "t-more", "-n2")
    rest = command.json("query", "time", "-t", "t-more", "--cursor", first["next_cursor"])

    assert len(some.stdout.splitlines()) == 3
    assert f"--cursor {first['next_cursor']}" in some.stderr
    ids = [message["message_id"] for message in first["messages"] + rest["messages"]]
    assert ids == [result.message_id for result in reversed(results)]


def test_what_a_group_has_read_is_told_apart_from_what_it_has_not(
    cluster: RunningCluster, command: Eruca
) -> None:
    sent(cluster, "t-group", 4)
    command("group", "create", "g-read", "--start=earliest")
    command("consume", "t-group", "-g", "g-read", "-n4")
    sent(cluster, "t-group", 1)

    left = command.json("query", "time", "-t", "t-group", "--group=g-read", "--bodies")
    past = command.json("query", "time", "-t", "t-group", "-g", "g-read", "--past")

    assert [message["body"]["text"] for message in left["messages"]] == ["body 0"]
    assert len(past["messages"]) == 4
    assert "--past requires --group" in command("query", "time", "-t", "x", "--past", code=2).stderr


def test_a_life_line_tells_each_turn_and_where_groups_stand(
    cluster: RunningCluster, command: Eruca
) -> None:
    message_id = failing(cluster, "t-life", "g-life")

    lines = command("timeline", message_id).stdout.splitlines()
    document = command.json("timeline", message_id)

    assert lines[0] == f"{message_id}, tag bad, keys order-7"
    assert lines[2].split() == ["at", "after", "event", "where", "on", "what"]
    turns = [event["kind"].replace("_", " ") for event in document["events"]]
    assert turns == ["stored", "sent back", "retry", "dead letter"]
    events = lines[3 : 3 + len(turns)]
    for turn, line in zip(turns, events, strict=True):
        assert turn in line
    assert r"by g-life, attempt 1, failed, ValueError: no such\ncarrier" in events[1]
    assert "from t-life/0@0" in events[1]
    groups = lines[lines.index("", 3) + 1 :]
    assert groups[0].split()[:3] == ["group", "stands", "since"]
    assert groups[1].split()[:2] == ["g-life", "past"]
    assert [group["state"] for group in document["groups"]] == ["past"]


def test_a_message_that_no_group_has_to_do_with_says_so(
    cluster: RunningCluster, command: Eruca
) -> None:
    [result] = sent(cluster, "t-nobody", 1)

    assert "no consumer group is known" in command("timeline", result.message_id).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["query", "id", "no-such-id"], "no-such-id"),
        (["timeline", "no-such-id"], "no-such-id"),
        (["query", "key", "a b", "-t", "x"], "key"),
        (["query", "time", "-t", "a b"], "topic"),
        (["query", "time", "-t", "x", "--cursor=nonsense"], "cursor"),
        (["query", "time", "-t", "x", "--since=1h", "--until=2h"], "is later than until"),
        (["query", "rebuild", "--yes", "--broker=broker-z"], "broker-z"),
    ],
)
def test_what_cannot_be_answered_is_said_in_a_line(
    command: Eruca, arguments: list[str], said: str
) -> None:
    refused = command(*arguments, code=1)

    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_the_read_model_is_rebuilt_while_it_answers(
    cluster: RunningCluster, command: Eruca
) -> None:
    results = sent(cluster, "t-again", 3)

    asked = CliRunner().invoke(app, ["query", "rebuild"], env=command.environment)
    done = command("query", "rebuild", "--yes").stderr
    status = command.json("query", "status")
    one = command.json("query", "rebuild", "--yes", "--broker=broker-b")
    begun = command("query", "rebuild", "--yes", "--no-wait").stderr

    assert asked.exit_code == 2
    assert "give --yes" in asked.stderr
    assert done.startswith("rebuilt: broker-a, broker-b; ")
    assert [log["rebuild"] for log in status["followed"]] == [None, None]
    assert sum(log["rows"] for log in status["followed"]) >= len(results)
    assert one["brokers"] == ["broker-b"]
    assert [log["broker_name"] for log in one["followed"]] == ["broker-b"]
    assert begun.startswith("started: broker-a, broker-b; to see the progress")
    for result in results:
        assert command.json("query", "id", result.message_id)["message"]["body"] is not None


def test_the_status_names_who_follows_each_log(cluster: RunningCluster, command: Eruca) -> None:
    lines = command("query", "status").stdout.splitlines()
    document = command.json("query", "status")

    assert [line.split()[0] for line in lines] == ["broker", "broker-a", "broker-b"]
    for line in lines[1:]:
        assert document["name"] in line


def test_without_a_query_service_it_is_said_how_to_have_one() -> None:
    with RunningCluster() as cluster:
        command = Eruca(cluster.namesrv_urls[0])
        for arguments in (["query", "status"], ["timeline", "x"], ["query", "rebuild", "--yes"]):
            refused = command(*arguments, code=1).stderr

            assert "no query service is known" in refused
            assert "python -m eruca_query" in refused
            assert "ERUCA_QUERY_URLS" in refused
            assert len(refused.splitlines()) == 1
        environment = {**command.environment, "ERUCA_QUERY_URLS": "http://127.0.0.1:1"}
        gone = CliRunner().invoke(app, ["query", "id", "x", "-o", "json"], env=environment)

    assert gone.exit_code == 1
    assert json.loads(gone.stderr)["fix"].startswith("start one")
    assert len(gone.stderr.splitlines()) == 1
