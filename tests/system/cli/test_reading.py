"""Messages, lags and logs read from the command line, once or until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import signal
from itertools import pairwise
from typing import Any

import pytest

from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE
from support.command_line import STOPS, Eruca
from support.patience import PATIENCE_SECONDS


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
