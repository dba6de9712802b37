"""Groups and dead letters from the command line, against a cluster of two brokers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eruca
from eruca.contract.groups import CustomizedRetryPolicy
from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE, RunningCluster
from support.command_line import Eruca
from support.patience import PATIENCE_SECONDS


@pytest.fixture(scope="module")
def namesrv_url() -> Iterator[str]:
    with RunningCluster(brokers=2) as cluster:
        yield cluster.namesrv_urls[0]


@pytest.fixture
def command(namesrv_url: str) -> Eruca:
    return Eruca(namesrv_url)


def filled(command: Eruca, topic: str, count: int) -> None:
    command("topic", "create", topic, "--queue-count=2")
    command.piped("".join(f"m{i}\n" for i in range(count)), "send", "--topic", topic)


def queues(shown: dict[str, Any], topic: str) -> list[dict[str, Any]]:
    return [queue for queue in shown["queues"] if queue["topic"] == topic]


def test_a_group_is_created_changed_listed_and_deleted(command: Eruca) -> None:
    created = command.json("group", "create", "g-life", "--start=earliest", "--retries-max=3")
    changed = command.json("group", "create", "g-life", "--ordered")

    assert {c["start"] for c in created.values()} == {"earliest"}
    assert {c["retries_max"] for c in created.values()} == {3}
    assert {(c["ordered"], c["retries_max"]) for c in changed.values()} == {(True, 3)}
    assert {c["start"] for c in changed.values()} == {"earliest"}
    assert "g-life" in command("group", "list").stdout.split()

    assert command.json("group", "delete", "g-life", "--yes")["deleted_on"] == [
        "broker-a",
        "broker-b",
    ]
    assert "a group 'g-life'" in command("group", "show", "g-life", code=1).stderr


def test_a_time_at_which_a_group_starts_is_shown_like_every_other(command: Eruca) -> None:
    created = command("group", "create", "g-time", "--start=2099-01-01T00:00:00Z")

    assert "2099-01-01T00:00:00.000Z" in created.stdout


def test_creating_a_group_again_changes_at_each_broker_only_what_is_named(
    command: Eruca, namesrv_url: str
) -> None:
    with eruca.Client(namesrv_url) as client:
        client.admin.groups.create(
            "g-again",
            start="earliest",
            broadcast_enabled=False,
            retry_policy=CustomizedRetryPolicy(delays_seconds=[1]),
        )
        client.admin.groups.create("g-again", start="latest", retries_max=5, broker_name="broker-b")

    done = command("group", "create", "g-again", "--disabled")

    configs = command.json("group", "show", "g-again")["brokers"]
    assert not any(config["consume_enabled"] for config in configs.values())
    assert (configs["broker-a"]["start"], configs["broker-b"]["start"]) == ("earliest", "latest")
    assert not configs["broker-a"]["broadcast_enabled"]
    assert configs["broker-a"]["retry_policy"] == {"kind": "customized", "delays_seconds": [1.0]}
    assert configs["broker-b"]["retries_max"] == 5
    assert done.stderr.splitlines() == [
        "broker-a already had g-again: enabled yes → no",
        "broker-b already had g-again: enabled yes → no",
    ]


def test_consume_prints_and_moves_the_group_by_as_much(command: Eruca) -> None:
    filled(command, "t-consume", 5)
    command("group", "create", "g-consume", "--start=earliest")

    first = command("consume", "t-consume", "-g", "g-consume", "-n3", "-ojson").stdout
    lag = command.json("group", "lag", "g-consume")
    rest = command("consume", "t-consume", "-g", "g-consume", "-n2", "-ojson").stdout

    bodies = [json.loads(line)["body"]["text"] for line in (first + rest).splitlines()]
    assert sorted(bodies) == ["m0", "m1", "m2", "m3", "m4"]
    assert lag["lag"] == 2
    assert command.json("group", "lag", "g-consume")["lag"] == 0


@pytest.mark.parametrize("order", [(), ("--ordered",)], ids=["concurrent", "ordered"])
def test_what_cannot_be_printed_is_left_to_the_next_member(
    command: Eruca, order: tuple[str, ...]
) -> None:
    name = "-".join(("unprinted", *order))
    filled(command, f"t-{name}", 40)
    consume = ("consume", f"t-{name}", "-g", f"g-{name}", "--start=earliest", *order)

    with (
        Path("/dev/full").open("w") as full,
        command.start(*consume, stdout=full) as process,
    ):
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 1
    assert errors.splitlines()[-1] == "error: [Errno 28] No space left on device"
    assert "Traceback" not in errors
    assert command.json("scheduled", "list", "--topic", f"%RETRY%g-{name}") == []
    assert command.json("group", "lag", f"g-{name}")["lag"] == 40


def test_a_member_is_shown_while_it_is_there(command: Eruca) -> None:
    filled(command, "t-member", 1)
    with command.start("consume", "t-member", "-g", "g-member", "--start=earliest") as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith("m0\n")

        shown = command.json("group", "show", "g-member")
        refused = command("group", "delete", "g-member", "--yes", code=1)

        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
    owners = {queue["owner"] for queue in queues(shown, "t-member")}
    assert len(owners) == 1
    assert owners == {m["client_id"] for m in shown["members"]["broker-a"]["members"]}
    assert "member" in refused.stderr


@pytest.mark.parametrize(
    ("option", "text"), [("--filter", "paid || refunded"), ("--sql", "price > 20")]
)
def test_a_member_with_another_filter_is_told_what_to_give(
    command: Eruca, option: str, text: str
) -> None:
    name = f"filtered{option}"
    command("topic", "create", f"t-{name}", "--queue-count=1")
    with command.start("consume", f"t-{name}", "-g", f"g-{name}", option, text) as process:
        assert process.stderr is not None
        assert "is a member" in process.stderr.readline()

        refused = command("consume", f"t-{name}", "-g", f"g-{name}", code=1)

        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
    assert f"give {option} '{text}', or use a group of your own" in refused.stderr


def test_a_reset_is_looked_at_and_then_done(command: Eruca) -> None:
    filled(command, "t-reset", 4)
    command("group", "create", "g-reset", "--start=earliest")
    command("consume", "t-reset", "-g", "g-reset", "-n4")
    reset = ("group", "reset", "g-reset", "--topic=t-reset")

    looked_at = command.json(*reset, "--to=earliest", "--dry-run")
    before = command.json("group", "lag", "g-reset")
    done = command.json(*reset, "--to=earliest", "--yes")
    after = command.json("group", "lag", "g-reset")

    assert looked_at == done
    assert (before["lag"], after["lag"]) == (0, 4)


def test_a_group_is_shown_as_of_an_earlier_place_in_the_log(command: Eruca) -> None:
    command("topic", "create", "t-past", "--queue-count=1", "--broker=broker-a")
    command.piped("m0\nm1\n", "send", "--topic=t-past")
    command("group", "create", "g-past", "--start=earliest")
    command("consume", "t-past", "-g", "g-past", "-n2")
    command.piped("m2\n", "send", "--topic=t-past")
    command("consume", "t-past", "-g", "g-past", "-n1")
    tail = command("tail", "t-past", "--start=earliest", "--no-follow", "-ojson").stdout
    first, _, last = (json.loads(line)["log_offset"] for line in tail.splitlines())

    def shown(log_offset: int) -> str:
        return command("group", "show", "g-past", f"--at=broker-a:{log_offset}").stdout

    past = command.json("group", "show", "g-past", f"--at=broker-a:{last}")
    [queue] = queues(past, "t-past")
    assert past["broker"] == "broker-a"
    assert (queue["committed_offset"], queue["max_offset"], queue["lag"]) == (2, 2, 0)
    assert shown(first) == "g-past did not exist at broker-a\n"
    head, titles, *rows = shown(last).splitlines()
    assert head.startswith("g-past: enabled; subscribed to ")
    assert titles.split()[:5] == ["topic", "queue", "committed", "end", "lag"]
    assert ["t-past", "0", "2", "2", "0"] in [row.split()[:5] for row in rows]
    assert queues(command.json("group", "lag", "g-past"), "t-past")[0]["committed_offset"] == 3
    assert "BROKER:OFFSET" in command("group", "show", "g-past", "--at=7", code=2).output


@pytest.mark.parametrize("place", ["offset:x", "yesterday", "offset:-1", "7"])
def test_a_place_that_is_none_is_refused(command: Eruca, place: str) -> None:
    refused = command("group", "reset", "g", "--topic=t", f"--to={place}", "--yes", code=2)

    assert place in refused.stderr
    assert "such as offset:1000" in " ".join(refused.stderr.replace("│", " ").split())


def test_an_offset_that_is_in_no_queue_changes_nothing(command: Eruca) -> None:
    filled(command, "t-beyond", 2)
    command("group", "create", "g-beyond", "--start=earliest")

    refused = command(
        "group", "reset", "g-beyond", "--topic=t-beyond", "--to=offset:99", "--yes", code=1
    )

    assert "99" in refused.stderr
    assert all(
        q["committed_offset"] in (None, 0)
        for q in command.json("group", "lag", "g-beyond")["queues"]
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("group", "show", "g-nowhere"),
        ("group", "lag", "g-nowhere"),
        ("group", "reset", "g-nowhere", "--topic=t", "--to=earliest"),
        ("group", "delete", "g-nowhere", "--yes"),
        ("dlq", "list", "g-nowhere"),
        ("dlq", "redrive", "g-nowhere", "--all", "--yes"),
    ],
    ids=" ".join,
)
def test_a_group_that_is_nowhere_is_said_to_be_at_no_broker(
    command: Eruca, arguments: tuple[str, ...]
) -> None:
    refused = command(*arguments, code=1)

    assert refused.stderr.startswith("error: no broker has a group 'g-nowhere'")
    assert "eruca group create g-nowhere" in refused.stderr


def test_a_group_shows_the_messages_and_bytes_that_it_has_read(command: Eruca) -> None:
    filled(command, "t-read", 6)
    command("consume", "t-read", "-g", "g-read", "--start=earliest", "-n4")

    found = command.json("group", "show", "g-read")["traffic"]
    text = command("group", "show", "g-read").stdout

    read = [one for one in found if one["topic"] == "t-read"]
    assert {one["broker_name"] for one in read} == {"broker-a", "broker-b"}
    assert sum(one["message_count"] for one in read) == 4
    sizes = {one["size_bytes"] / one["message_count"] for one in read if one["message_count"]}
    assert len(sizes) == 1, "messages of equal length have records of equal size"
    assert "bytes read" in text


def test_watching_looks_again_until_it_is_stopped(command: Eruca) -> None:
    filled(command, "t-watch", 2)
    command("consume", "t-watch", "-g", "g-watch", "--start=earliest", "-n1")
    with command.start(
        "group", "lag", "g-watch", "--watch", "--every-seconds=0.1", "-ojson"
    ) as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)

    assert [look["lag"] for look in looks] == [1, 1, 1]


def ended(command: Eruca, *words: str, code: int) -> subprocess.CompletedProcess[str]:
    """Run the command as a process, so that several may run at once."""
    with command.start(*words, stdin=subprocess.DEVNULL) as process:
        stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == code, stdout + stderr
    return subprocess.CompletedProcess(words, code, stdout, stderr)


@pytest.mark.anyio
async def test_a_broker_that_hangs_is_named_and_what_the_others_say_is_shown() -> None:
    registered = {"ERUCA_BROKER_EXPIRY_SECONDS": "600"}  # for as long as the test may take
    async with LocalCluster(brokers=2, settings=SMALL_STORE | registered) as cluster:
        command = Eruca(cluster.namesrv_urls[0])
        command.environment |= {"ERUCA_TIMEOUT_SECONDS": "5"}  # not the tests' own
        await asyncio.to_thread(filled, command, "t-hung", 8)
        await asyncio.to_thread(command, "group", "create", "g-hung", "--start=earliest")
        hung = cluster.pid("broker-b")
        assert hung is not None
        os.kill(hung, signal.SIGSTOP)
        try:
            # All at once: each waits for the broker as long as the time-out lets it.
            lag, told, shown, status, groups, group, recalled, *lists = await asyncio.gather(
                *(
                    asyncio.to_thread(ended, command, *words.split(), code=1)
                    for words in (
                        "group lag g-hung --topic=t-hung -ojson",
                        "group lag g-hung",
                        "topic show t-hung",
                        "status",
                        "group list -ojson",
                        "group show g-hung -ojson",
                        "scheduled recall no-such",
                        "dlq list g-hung -ojson",
                        "scheduled list -ojson",
                        "txn list -ojson",
                    )
                )
            )
        finally:
            os.kill(hung, signal.SIGCONT)

    document = json.loads(lag.stdout)
    assert document["lag"] is None
    assert {queue["broker_name"] for queue in document["queues"]} == {"broker-a"}
    assert list(document["unanswered"]) == ["broker-b"]
    assert "; from broker-b" in recalled.stderr
    assert "broker-b does not answer: " in told.stderr
    assert "broker-a" in shown.stdout
    assert "broker-b does not answer: " in shown.stderr
    assert "broker-b" in status.stdout
    assert [(g["group"], g["lag"]) for g in json.loads(groups.stdout)] == [("g-hung", None)]
    assert "broker-b does not answer: " in groups.stderr
    document = json.loads(group.stdout)
    assert (list(document["brokers"]), list(document["members"])) == (["broker-a"], ["broker-a"])
    assert (document["lag"], list(document["unanswered"])) == (None, ["broker-b"])
    for told in lists:
        assert json.loads(told.stdout) == []
        assert "broker-b does not answer: " in told.stderr


@pytest.mark.anyio
async def test_watching_goes_on_when_the_only_broker_has_restarted() -> None:
    async with LocalCluster(settings=SMALL_STORE) as cluster:
        command = Eruca(cluster.namesrv_urls[0])
        await asyncio.to_thread(filled, command, "t-away", 2)
        await asyncio.to_thread(command, "group", "create", "g-away")
        with command.start(
            "group", "lag", "g-away", "--topic=t-away", "--watch", "--every-seconds=0.1", "-ojson"
        ) as watch:
            assert watch.stdout is not None
            assert watch.stderr is not None
            await asyncio.to_thread(watch.stdout.readline)

            await cluster.stop_one("broker-a")
            gone = await asyncio.to_thread(watch.stderr.readline)
            await cluster.restart("broker-a")
            back = await asyncio.to_thread(watch.stderr.readline)

            assert gone.startswith("the lag is unknown now, retrying: ")
            assert back == "the lag is known again\n"
            assert "queues" in json.loads(await asyncio.to_thread(watch.stdout.readline))
            watch.send_signal(signal.SIGINT)
            watch.communicate(timeout=PATIENCE_SECONDS)


def test_watching_in_a_pipe_shows_each_look_and_ends_with_its_reader(command: Eruca) -> None:
    filled(command, "t-piped", 2)
    command("consume", "t-piped", "-g", "g-piped", "--start=earliest", "-n1")
    with command.start("group", "lag", "g-piped", "--watch", "--every-seconds=0.1") as process:
        assert process.stdout is not None
        titles = [process.stdout.readline()]
        while len(titles) < 2:
            line = process.stdout.readline()
            titles += [line] if line.startswith("g-piped: ") else []
        process.stdout.close()

        assert process.wait(30) == 0

    assert [title.startswith("g-piped: ") for title in titles] == [True, True]


@pytest.fixture(scope="module")
def dead(namesrv_url: str) -> str:
    """Make a group give up on three messages, and return its name."""
    with eruca.Client(namesrv_url) as client:
        client.admin.create_topic("t-dead", queue_count=1)
        client.admin.groups.create(
            "g-dead",
            start="earliest",
            retries_max=0,
            retry_policy=CustomizedRetryPolicy(delays_seconds=[0]),
        )
        with client.producer() as producer:
            producer.send_many([eruca.Message("t-dead", b"poison %d" % i) for i in range(3)])
        consumer = client.push_consumer("g-dead")

        @consumer.on("t-dead")
        def fail(message: eruca.ReceivedMessage) -> None:
            raise ValueError(f"cannot take {message.text()}")

        with consumer:
            while len(list(client.admin.groups.dead_letters("g-dead"))) < 3:
                pass  # each look is a request
    return "g-dead"


def test_dead_letters_are_listed_shown_and_redriven(command: Eruca, dead: str) -> None:
    listed = command.json("dlq", "list", dead)
    letter = listed[0]
    place = f"{letter['broker_name']}/{letter['dead_letter_id']}"
    shown = json.loads(command("dlq", "show", dead, place).stdout)
    looked_at = command("dlq", "redrive", dead, "--all", "--dry-run")
    one = command("dlq", "redrive", dead, place, "--yes")
    with command.start("dlq", "redrive", dead, "--all", "--yes", "--per-second=50") as rest:
        assert rest.stdout is not None
        assert rest.stderr is not None
        rest.stdout.close()  # which is no reason to leave out any of them
        said_of_rest = rest.stderr.read()

    assert {entry["origin_topic"] for entry in listed} == {"t-dead"}
    assert "cannot take poison" in shown["last_error"]
    assert shown["message"]["body"]["text"].startswith("poison")
    assert "would be: 3 redriven" in looked_at.stderr
    assert looked_at.stdout.count("would be redriven to t-dead") == 3
    assert f"{place} redriven to t-dead" in one.stdout
    assert "1 redriven" in one.stderr
    assert (rest.returncode, "2 redriven" in said_of_rest) == (0, True)
    assert len(command.bodies("t-dead")) == 6


@pytest.mark.parametrize("where", [(), ("--broker=broker-a",)], ids=["anywhere", "at a broker"])
def test_topics_of_groups_are_listed_only_when_asked_for(
    command: Eruca, dead: str, where: tuple[str, ...]
) -> None:
    assert f"%RETRY%{dead}" not in command("topic", "list", *where).stdout
    assert f"%RETRY%{dead}" in command("topic", "list", "--system", *where).stdout


def test_dead_letters_are_found_where_only_one_broker_knows_the_group(
    command: Eruca, namesrv_url: str
) -> None:
    command("topic", "create", "t-here", "--queue-count=1", "--broker=broker-b")
    queue = eruca.MessageQueue("t-here", "broker-b", 0)
    with eruca.Client(namesrv_url) as client:
        client.admin.groups.commit("g-here", {queue: 0})

    assert command.json("dlq", "list", "g-here") == []
    listed = command("dlq", "list", "g-here")
    assert (listed.stdout, listed.stderr) == ("", "no dead letters\n")
    assert "no dead letter matches" in command("dlq", "redrive", "g-here", "--all", "-y").stderr


def test_redriving_needs_to_know_which(command: Eruca) -> None:
    assert "options that select" in command("dlq", "redrive", "g-dead", "--yes", code=2).stderr
    assert "BROKER/ID" in command("dlq", "show", "g-dead", "17", code=2).stderr
