"""The command line as a person types it, against a cluster of two brokers."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE, RunningCluster
from support.command_line import ERUCA, Eruca
from support.patience import PATIENCE_SECONDS

FLIGHTS = "carrier,flight,tail\nUA,1545,N14228\nAA,1141,N619AA\nUA,1714,N24211\n"


@pytest.fixture(scope="module")
def namesrv_url() -> Iterator[str]:
    with RunningCluster(brokers=2) as cluster:
        yield cluster.namesrv_urls[0]


@pytest.fixture
def eruca(namesrv_url: str) -> Eruca:
    return Eruca(namesrv_url)


def test_a_topic_is_created_shown_listed_and_deleted(eruca: Eruca) -> None:
    created = eruca.json("topic", "create", "t-life", "--queue-count=2", "--permission=rw")
    assert {name: config["write_queue_count"] for name, config in created.items()} == {
        "broker-a": 2,
        "broker-b": 2,
    }

    shown = eruca.json("topic", "show", "t-life")
    assert [(q["broker_name"], q["queue_id"]) for q in shown["queues"]] == [
        ("broker-a", 0),
        ("broker-a", 1),
        ("broker-b", 0),
        ("broker-b", 1),
    ]
    assert "t-life" in eruca("topic", "list").stdout.split()
    assert "t-life" in {
        topic["topic"] for topic in eruca.json("topic", "list", "--broker=broker-a")
    }
    route = eruca.json("route", "t-life")
    assert [broker["broker_name"] for broker in route["brokers"]] == ["broker-a", "broker-b"]

    eruca("topic", "delete", "t-life", "--yes")
    missing = eruca("topic", "show", "t-life", code=1)
    assert "eruca topic create t-life," in missing.stderr
    assert len(missing.stderr.splitlines()) == 1


def test_creating_a_topic_again_changes_at_each_broker_only_what_is_named(eruca: Eruca) -> None:
    eruca("topic", "create", "t-again", "--queue-count=6", "--ordered")
    wider = eruca("topic", "create", "t-again", "--queue-count=8", "--broker=broker-b")

    same = eruca("topic", "create", "t-again")
    changed = eruca("topic", "create", "t-again", "--permission=r")

    assert same.stderr.splitlines() == [
        "broker-a already had t-again: nothing changed",
        "broker-b already had t-again: nothing changed",
    ]
    assert "broker-a already had t-again: permission rw → r" in changed.stderr
    assert "ordered over broker-a:6, broker-b:6 → over broker-a:6, broker-b:8" in wider.stderr
    held = eruca.json("topic", "show", "t-again")["brokers"]
    settings = {
        name: (c["read_queue_count"], c["permission"], c["ordered"]) for name, c in held.items()
    }
    assert settings == {"broker-a": (6, "r", True), "broker-b": (8, "r", True)}


def test_queues_are_taken_away_only_where_that_is_said_to_be_meant(eruca: Eruca) -> None:
    eruca("topic", "create", "t-fewer", "--queue-count=3", "--broker=broker-a")

    refused = eruca("topic", "create", "t-fewer", "--queue-count=2", code=2)
    kept = eruca.json("topic", "show", "t-fewer")["brokers"]
    done = eruca.json("topic", "create", "t-fewer", "--queue-count=2", "--yes")

    assert "--yes" in refused.stderr
    assert {name: config["read_queue_count"] for name, config in kept.items()} == {"broker-a": 3}
    assert {name: c["read_queue_count"] for name, c in done.items()} == {
        "broker-a": 2,
        "broker-b": 2,
    }


def test_system_topics_are_listed_only_when_asked_for(eruca: Eruca) -> None:
    assert "ERUCA_SYS_EVENTS" not in eruca("topic", "list").stdout
    assert "ERUCA_SYS_EVENTS" in eruca("topic", "list", "--system").stdout


def test_deleting_without_anybody_to_ask_needs_yes(eruca: Eruca) -> None:
    eruca("topic", "create", "t-kept")

    refused = eruca("topic", "delete", "t-kept", code=2)

    assert "--yes" in refused.stderr
    assert "t-kept" in eruca("topic", "list").stdout


STOPS = pytest.mark.parametrize(
    ("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl_c", "sigterm"]
)


@STOPS
def test_ctrl_c_ends_a_question_and_nothing_is_done(
    eruca: Eruca, stop: signal.Signals, code: int
) -> None:
    eruca("topic", "create", "t-asked")
    question = "Delete t-asked and all of its messages? [y/N]"
    ours, its = pty.openpty()
    with (
        eruca.start("topic", "delete", "t-asked", stdin=its) as process,
        os.fdopen(ours),  # closed first, which ends a question that nothing else has ended
        os.fdopen(its),
    ):
        assert process.stderr is not None
        assert process.stderr.read(len(question)) == question

        process.send_signal(stop)

        assert process.wait(60) == code
        assert "Traceback" not in process.stderr.read()
    eruca("topic", "show", "t-asked")


def test_one_message_can_be_sent_again_under_its_key_and_is_stored_once(eruca: Eruca) -> None:
    eruca("topic", "create", "t-once")
    send = ("send", "--topic=t-once", "--idempotency-key=mail-17")

    [first], [again] = (eruca.json(*send, "hello") for _ in range(2))

    assert (first.pop("replayed"), again.pop("replayed")) == (False, True)
    assert first == again
    assert first["message_id"] == "mail-17"
    assert "differs in its body" in eruca(*send, "another", code=1).output
    eruca(*send, "two", "messages", code=2)
    eruca("send", "--topic=t-once", "--idempotency-key=two words", "x", code=1)


def test_messages_from_arguments_are_stored_with_tag_keys_and_properties(eruca: Eruca) -> None:
    eruca("topic", "create", "t-args")
    options = ["--tag=paid", "--key=17", "--key=x", "--sharding-key=a", "--property=from=cli"]

    receipts = eruca.json("send", "--topic=t-args", "order 17", "order 18", *options)

    assert [receipt["queue_offset"] for receipt in receipts] == [0, 1]
    in_words = eruca("message", "show", receipts[0]["offset_message_id"]).stdout
    assert re.search(rf"^message id +{receipts[0]['message_id']}$", in_words, re.MULTILINE)
    assert re.search(r"^retries +0$", in_words, re.MULTILINE)
    assert "_" not in eruca("send", "--topic=t-args", "order 19").stdout
    shown = eruca.json("message", "show", receipts[0]["offset_message_id"])
    assert shown["body"] == {"text": "order 17"}
    assert (shown["tag"], shown["keys"], shown["sharding_key"]) == ("paid", ["17", "x"], "a")
    assert shown["properties"] == {"from": "cli"}
    by_id = eruca.json("message", "show", receipts[1]["message_id"], "--topic=t-args")
    assert by_id["body"] == {"text": "order 18"}
    found = eruca.json("message", "find", "--topic=t-args", "--key=x")
    assert sorted(message["body"]["text"] for message in found) == ["order 17", "order 18"]


def test_a_message_that_is_nowhere_is_one_clear_line(eruca: Eruca) -> None:
    eruca("topic", "create", "t-ids")
    unique_id = "C0000202" + "1F03" + "1A2071B4" + "0AAC2000" + "0001"
    other_host = "7F" + "0" * 12 + "01" + "0" * 16  # port 1: an offset id as any other

    unplaced = eruca("message", "show", unique_id, code=1)
    missing = eruca("message", "show", other_host, code=1)
    elsewhere = eruca("message", "show", "order-17", "--topic=t-ids", code=1)
    zeros = eruca("message", "show", "0" * 32, "--topic=t-ids", code=1)
    wrong = eruca("message", "show", "xyz", code=1)

    assert f"{unique_id} is a unique id" in unplaced.stderr
    assert "store host 127.0.0.0:1 " in missing.stderr
    for said in (unplaced, missing, wrong):
        assert "for a unique id give --topic, or use eruca query id" in said.stderr
    assert "t-ids has no message with the id order-17" in elsewhere.stderr
    assert "t-ids has no message with the id 000" in zeros.stderr
    assert "expected an offset id of 32 hex digits" in wrong.stderr


def test_each_line_of_stdin_is_a_message(eruca: Eruca) -> None:
    eruca("topic", "create", "t-lines")

    said = eruca.piped("one\n\ntwo\nthree", "send", "--topic=t-lines")

    assert said.startswith("3 messages sent to t-lines in ")
    assert sorted(eruca.bodies("t-lines")) == ["one", "three", "two"]


def test_csv_columns_become_tag_key_and_sharding_key(eruca: Eruca, tmp_path: Path) -> None:
    eruca("topic", "create", "t-csv")
    path = tmp_path / "flights.csv"
    path.write_text(FLIGHTS)
    fields = ["--tag-field=carrier", "--key-field=flight", "--sharding-key-field=tail"]

    counts = eruca.json("send", "--topic=t-csv", f"--file={path}", *fields)

    assert (counts["sent"], counts["skipped"]) == (3, 0)
    united = [json.loads(body)["flight"] for body in eruca.bodies("t-csv", "--filter=UA")]
    assert sorted(united) == ["1545", "1714"]
    [found] = eruca.json("message", "find", "--topic=t-csv", "--key=1141")
    assert (found["tag"], found["sharding_key"]) == ("AA", "N619AA")


def test_a_bad_row_is_named_by_its_line_and_ends_it(eruca: Eruca) -> None:
    eruca("topic", "create", "t-bad")

    rows = '{"a":1}\n{bad\n[3]\n'

    said = eruca.piped(rows, "send", "--topic=t-bad", "--format=jsonl", code=1)

    assert "error: line 2: not JSON" in said
    assert eruca.bodies("t-bad") == ['{"a":1}']


def test_bad_rows_may_be_skipped_told_and_counted(eruca: Eruca) -> None:
    eruca("topic", "create", "t-skip")

    options = ["--format=jsonl", "--skip-errors"]

    said = eruca.piped("1\n{bad\n3\n", "send", "--topic=t-skip", *options, code=3)

    assert "skipped: line 2" in said
    assert "2 messages sent to t-skip" in said
    assert sorted(eruca.bodies("t-skip")) == ["1", "3"]


def test_rows_are_sent_to_the_last_though_nobody_reads_what_is_said_of_bad_ones(
    eruca: Eruca,
) -> None:
    eruca("topic", "create", "t-unheard")
    options = ["--format=jsonl", "--skip-errors"]
    with eruca.start("send", "--topic=t-unheard", *options) as sender:
        assert sender.stdin is not None
        assert sender.stderr is not None
        sender.stdin.write("{bad\n")
        sender.stdin.flush()
        assert "skipped: line 1" in sender.stderr.readline()
        sender.stderr.close()
        sender.stdin.write("{bad\n3\n{bad\n5\n")
        sender.stdin.close()

        assert sender.wait(PATIENCE_SECONDS) == 3

    assert sorted(eruca.bodies("t-unheard")) == ["3", "5"]


def test_a_bad_row_is_an_error_though_nobody_reads_the_counts(eruca: Eruca) -> None:
    with eruca.start("send", "--topic=t-uncounted", "--format=jsonl", "-ojson") as sender:
        assert sender.stdin is not None
        assert sender.stdout is not None
        sender.stdout.close()
        sender.stdin.write("{bad\n")
        sender.stdin.close()

        assert sender.stderr is not None
        assert json.loads(sender.stderr.read())["code"] == "bad-row"

    assert sender.returncode == 1


def test_without_a_header_no_row_is_skipped_for_another(eruca: Eruca) -> None:
    eruca("topic", "create", "t-header")
    options = ["--format=csv", "--skip-errors"]

    said = eruca.piped('"a"x,b\n1,2\n3,4\n', "send", "--topic=t-header", *options, code=1)

    assert "error: line 1: the header: not CSV" in said
    assert eruca.bodies("t-header") == []


def test_what_failed_before_a_bad_row_is_told_and_not_the_bad_row(namesrv_url: str) -> None:
    eruca = Eruca("http://127.0.0.1:1")

    said = eruca.piped("1\n{bad\n", "send", "--topic=t-first", "--format=jsonl", code=1)

    assert "error: line 1: " in said
    assert "0 messages sent to t-first" in said


def test_what_several_rows_failed_with_is_told_with_the_first_ones_line(namesrv_url: str) -> None:
    eruca = Eruca("http://127.0.0.1:1")

    said = eruca.piped("1\n2\n3\n", "send", "--topic=t-shared", code=1)

    assert "error: line 1: no name server answered" in said


def test_a_failure_is_told_while_the_next_row_is_awaited(namesrv_url: str) -> None:
    with Eruca("http://127.0.0.1:1").start("send", "--topic=t-early") as sender:
        assert sender.stdin is not None
        sender.stdin.write("at once\n")
        sender.stdin.flush()

        assert sender.wait(60) == 1


def test_a_line_is_sent_before_the_next_is_written(eruca: Eruca) -> None:
    eruca("topic", "create", "t-slow")
    with (
        eruca.start("tail", "t-slow", "--start=earliest", "--count=1") as tail,
        eruca.start("send", "--topic=t-slow") as sender,
    ):
        assert sender.stdin is not None
        sender.stdin.write("at once\n")
        sender.stdin.flush()

        shown, _ = tail.communicate(timeout=PATIENCE_SECONDS)

        assert shown.rstrip().endswith("at once")
        sender.communicate(timeout=PATIENCE_SECONDS)
    assert (tail.returncode, sender.returncode) == (0, 0)


@STOPS
def test_ctrl_c_while_rows_are_awaited_keeps_what_was_sent(
    eruca: Eruca, stop: signal.Signals, code: int
) -> None:
    topic = f"t-stop-{code}"
    eruca("topic", "create", topic)
    with (
        eruca.start("send", f"--topic={topic}") as sender,
        eruca.start("tail", topic, "--start=earliest", "--count=1") as tail,
    ):
        assert sender.stdin is not None
        sender.stdin.write("before\n")
        sender.stdin.flush()
        tail.communicate(timeout=PATIENCE_SECONDS)

        sender.send_signal(stop)

        assert sender.wait(60) == code
        assert sender.stderr is not None
        assert sender.stderr.read().startswith(f"1 message sent to {topic}")
    assert eruca.bodies(topic) == ["before"]


@STOPS
def test_a_tail_says_what_it_follows_and_ctrl_c_ends_it_without_a_word(
    eruca: Eruca, stop: signal.Signals, code: int
) -> None:
    topic = f"t-tail-{code}"
    eruca("topic", "create", topic, "--queue-count=1")
    eruca("send", f"--topic={topic}", "hello")
    with eruca.start("tail", topic, "--start=earliest") as process:
        assert process.stdout is not None
        assert "hello" in process.stdout.readline()

        process.send_signal(stop)

        said = f"following {topic}, 2 queues; Ctrl-C stops\n"
        assert process.communicate(timeout=PATIENCE_SECONDS) == ("", said)
    assert process.returncode == code


@pytest.mark.anyio
async def test_a_tail_tells_that_a_broker_is_away_and_goes_on_when_it_is_back() -> None:
    async with LocalCluster(settings=SMALL_STORE) as cluster:
        eruca = Eruca(cluster.namesrv_urls[0])
        await asyncio.to_thread(eruca.piped, "before\n", "send", "--topic=t-away")
        with eruca.start("tail", "t-away", "--start=earliest") as tail:
            assert tail.stdout is not None
            assert tail.stderr is not None
            assert "following" in await asyncio.to_thread(tail.stderr.readline)
            assert "before" in await asyncio.to_thread(tail.stdout.readline)

            await cluster.stop_one("broker-a")
            gone = await asyncio.to_thread(tail.stderr.readline)
            await cluster.restart("broker-a")
            back = await asyncio.to_thread(tail.stderr.readline)
            await asyncio.to_thread(eruca.piped, "after\n", "send", "--topic=t-away")

            assert gone.startswith("broker-a is away, waiting for it: ")
            assert back == "broker-a is back\n"
            assert "after" in await asyncio.to_thread(tail.stdout.readline)
            tail.send_signal(signal.SIGINT)
        assert tail.returncode == 130


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tail", "t-head", "--start=earliest"], "following t-head, 8 queues; Ctrl-C stops\n"),
        (["log", "follow", "--start=earliest"], ""),
    ],
)
def test_a_reader_that_goes_away_ends_it_without_a_word(
    eruca: Eruca, arguments: list[str], said: str
) -> None:
    """Although nothing more is written that would run into the broken pipe."""
    eruca("topic", "create", "t-head")
    eruca("send", "--topic=t-head", *["line"] * 10)
    with eruca.start(*arguments) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == said
    assert process.returncode == 0


def test_pull_shows_a_stretch_of_one_queue_and_says_where_it_ends(eruca: Eruca) -> None:
    eruca("topic", "create", "t-pull", "--queue-count=1", "--broker=broker-a")
    eruca("send", "--topic=t-pull", *(f"number {n}" for n in range(10)))

    done = eruca("pull", "t-pull", "--offset=3", "--count=2", "--output=json")

    bodies = [json.loads(line)["body"]["text"] for line in done.stdout.splitlines()]
    assert bodies == ["number 3", "number 4"]
    assert done.stderr == "next offset 5\n"
    assert "next offset 10" in eruca("pull", "t-pull", "--count=100").stderr
    beyond = eruca("pull", "t-pull", "--offset=99", code=1).stderr
    assert "expected an offset from 0 to 10, found 99" in beyond
    assert "give an --offset from 0 to 10" in beyond
    assert "no queue 7" in eruca("pull", "t-pull", "--queue=7", code=1).stderr


@pytest.mark.parametrize("arguments", [("tail", "--no-follow"), ("pull", "--count=10")])
def test_conditions_and_tags_say_what_is_read(eruca: Eruca, arguments: tuple[str, ...]) -> None:
    command, *options = arguments
    topic = f"t-sql-{command}"
    eruca("topic", "create", topic, "--queue-count=1", "--broker=broker-a")
    for price in (10, 20, 30):
        eruca("send", "--topic", topic, f"{price}", f"--property=price={price}", f"--tag=t{price}")

    def read(*filters: str) -> list[str]:
        shown = eruca(command, topic, "--start=earliest", "-ojson", *options, *filters).stdout
        return [json.loads(line)["body"]["text"] for line in shown.splitlines()]

    assert read("--sql", "price > 15 AND price < 25") == ["20"]
    assert read("--filter", "t10 || t30") == ["10", "30"]
    wrong = eruca(command, topic, "--sql", "price >", *options, code=1).stderr
    assert "character 8" in wrong


def test_the_lag_of_a_group_that_nobody_knows_is_an_error(eruca: Eruca) -> None:
    eruca("topic", "create", "t-group", "--queue-count=1")

    said = eruca("group", "lag", "nobody", "--topic=t-group", code=1).output

    assert "a group 'nobody'" in said


def test_the_log_is_followed_record_by_record(eruca: Eruca) -> None:
    eruca("topic", "create", "t-log", "--queue-count=1", "--broker=broker-b")
    eruca("send", "--topic=t-log", "in the log", "--tag=x")

    found: list[dict[str, Any]] = []
    with eruca.start("log", "follow", "--broker=broker-b", "--start=earliest", "-ojson") as process:
        assert process.stdout is not None
        while not (found and found[-1]["topic"] == "t-log"):
            found.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)

    assert found[0]["log_offset"] == 0
    for before, record in pairwise(found):
        assert record["log_offset"] == before["log_offset"] + before["size"]
    assert found[-1]["body"] == {"text": "in the log"}


def test_status_shows_every_service(eruca: Eruca) -> None:
    status = eruca.json("status")

    assert set(status["brokers"]) == {"broker-a", "broker-b"}
    assert all(broker["is_writable"] for broker in status["brokers"].values())
    [name_server] = status["name_servers"].values()
    assert name_server["brokers"] == 2
    assert "broker-b" in eruca("status").stdout


def test_the_doctor_finds_nothing_wrong_with_a_healthy_cluster_and_leaves_nothing(
    eruca: Eruca,
) -> None:
    found = eruca.json("doctor", "--write")

    assert found["healthy"]
    checks = {(f["subject"], f["check"]): f["verdict"] for f in found["findings"]}
    assert checks["broker-a", "round trip"] == checks["broker-b", "round trip"] == "ok"
    assert "fault" not in checks.values()
    for broker in ("broker-a", "broker-b"):  # the name server hears of it a little later
        assert "eruca-doctor" not in eruca("topic", "list", f"--broker={broker}").stdout


def test_the_doctor_goes_the_way_that_the_sdk_goes(namesrv_url: str) -> None:
    eruca = Eruca(namesrv_url)
    unused = ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy")
    eruca.environment |= dict.fromkeys(unused, "socks5://127.0.0.1:1") | {"NO_PROXY": "none.test"}

    found = eruca.json("doctor")

    [proxy] = [finding for finding in found["findings"] if finding["check"] == "proxy"]
    assert "bypass the environment's proxy" in proxy["detail"]


def test_an_output_that_lacks_characters_shows_them_in_another_way(eruca: Eruca) -> None:
    eruca("topic", "create", "t-ascii")
    eruca("send", "--topic=t-ascii", "naïve ✓")
    eruca.environment |= {"PYTHONIOENCODING": "ascii"}

    with eruca.start("doctor") as doctor:
        found, errors = doctor.communicate(timeout=PATIENCE_SECONDS)
    with eruca.start("tail", "t-ascii", "--start=earliest", "--no-follow") as tail:
        shown, _ = tail.communicate(timeout=PATIENCE_SECONDS)

    assert (doctor.returncode, tail.returncode) == (0, 0), errors
    assert found.startswith("+ settings")
    assert r"na\xefve \u2713" in shown


def without(eruca: Eruca, closed: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a stream closed, named as the shell closes it."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", ERUCA, *arguments],
        env={**os.environ, **eruca.environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_without_stdin_there_are_no_rows_to_send(eruca: Eruca) -> None:
    done = without(eruca, "<&-", "send", "--topic=t-closed")

    assert done.returncode == 2
    assert "stdin is closed" in done.stderr


@pytest.mark.parametrize("output", ["table", "json"])
def test_without_stdout_a_command_is_done_all_the_same(eruca: Eruca, output: str) -> None:
    done = without(eruca, ">&-", "topic", "create", f"t-unseen-{output}", "-o", output)

    assert (done.returncode, done.stderr) == (0, "")
    eruca("topic", "show", f"t-unseen-{output}")


def test_without_stderr_a_failure_is_told_by_the_exit_code(eruca: Eruca) -> None:
    assert without(eruca, "2>&-", "topic", "show", "t-nowhere").returncode == 1


def test_the_doctor_names_what_is_broken_and_how_to_mend_it(namesrv_url: str) -> None:
    eruca = Eruca(f"{namesrv_url};http://127.0.0.1:1")

    done = eruca("doctor", code=1)

    assert "✗ http://127.0.0.1:1" in done.stdout
    assert "to fix it: start the service" in done.stdout
    assert done.stderr.endswith(", 1 fault\n")


def test_a_broker_is_not_taken_for_a_name_server(eruca: Eruca) -> None:
    eruca("topic", "create", "t-broker")
    url = eruca.json("route", "t-broker")["brokers"][0]["urls"]["0"]["default"]

    status = eruca("status", "--namesrv", url, code=1)
    listed = eruca("topic", "list", "--namesrv", url, code=1)

    assert f"expected a name server at {url}, found broker broker-a" in status.stdout
    assert f"{url}: the answer is not a name server's" in listed.stderr
    assert "pydantic" not in status.output + listed.output


def test_the_doctor_tells_a_stranger_and_a_broker_from_a_name_server(eruca: Eruca) -> None:
    eruca("topic", "create", "t-doctor")
    broker_url = eruca.json("route", "t-doctor")["brokers"][0]["urls"]["0"]["default"]
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as stranger:
        Thread(target=stranger.handle_request, daemon=True).start()
        urls = f"{broker_url};http://127.0.0.1:{stranger.server_port}"

        shown = " ".join(eruca("doctor", "--namesrv", urls, code=1).stdout.split())

    assert "give the address of a name server" in shown
    assert "not in Eruca's form" in shown


def test_no_name_server_is_one_clear_line(namesrv_url: str) -> None:
    eruca = Eruca("http://127.0.0.1:1")

    for arguments in (["topic", "list"], ["send", "-t", "x", "y"], ["tail", "x"]):
        done = eruca(*arguments, code=1)
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("error: ")
        assert "ERUCA_NAMESRV_URLS" in done.stderr


def test_options_may_stand_before_and_after_the_command(namesrv_url: str) -> None:
    eruca = Eruca("http://127.0.0.1:1")

    before = eruca("--namesrv", namesrv_url, "-o", "json", "topic", "list")
    after = eruca("topic", "list", "--namesrv", namesrv_url, "-o", "json")

    assert json.loads(before.stdout) == json.loads(after.stdout)


def test_errors_are_problems_where_json_is_wanted(eruca: Eruca) -> None:
    done = eruca("topic", "show", "t-never", "--output=json", code=1)

    assert json.loads(done.stderr)["code"] == "topic-not-found"
