"""Topics from the command line: created, shown, changed and deleted; and its output."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess

import pytest

from support.command_line import ERUCA, STOPS, Eruca
from support.patience import PATIENCE_SECONDS


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


def test_status_shows_every_service(eruca: Eruca) -> None:
    status = eruca.json("status")

    assert set(status["brokers"]) == {"broker-a", "broker-b"}
    assert all(broker["is_writable"] for broker in status["brokers"].values())
    [name_server] = status["name_servers"].values()
    assert name_server["brokers"] == 2
    assert "broker-b" in eruca("status").stdout


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
