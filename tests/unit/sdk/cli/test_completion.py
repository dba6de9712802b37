"""Shell completion where no cluster answers; with one: tests/system/test_cli_completion.py."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from eruca.cli import completion
from eruca.cli.app import app
from eruca.cli.session import Session
from support.http_peers import peer

NOBODY = "http://127.0.0.1:1"


def parameters(command: Any, path: tuple[str, ...] = ()) -> Iterable[tuple[str, Any]]:  # noqa: ANN401
    """Yield each parameter of each command, with the command's name."""
    for name, below in getattr(command, "commands", {}).items():
        yield from parameters(below, (*path, name))
    if not hasattr(command, "commands"):
        yield from ((" ".join(path), parameter) for parameter in command.params)


def completes(parameter: Any) -> bool:  # noqa: ANN401 - typer's classes have moved between versions
    return parameter._custom_shell_complete is not None


def test_every_topic_group_and_broker_of_a_command_line_is_completed() -> None:
    """Only consumer groups are known to brokers: a producer group of ``txn list`` is not."""
    named = {"--topic", "--group", "--broker", "topic", "group", "broker"}
    wrong = [
        (command, parameter.name)
        for command, parameter in parameters(typer.main.get_command(app))
        if named & set(parameter.opts)
        and completes(parameter) == (parameter.name == "producer_group")
    ]
    assert wrong == []


@pytest.mark.parametrize("urls", [NOBODY, "nonsense", "https://127.0.0.1:1"])
@pytest.mark.parametrize("name", completion.NAMES)
def test_without_a_cluster_nothing_is_completed_and_nothing_is_said(
    name: str, urls: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert list(completion._asked(completion.NAMES[name], Session(urls))) == []
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("eruca").isEnabledFor(logging.WARNING)


@pytest.mark.anyio
async def test_a_name_server_that_never_answers_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "COMPLETION_SECONDS", 0.05)
    never = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await never.wait()

    async with peer(silent) as server:
        session = Session(server.url)
        found = await asyncio.to_thread(completion._asked, completion.NAMES["topic"], session)
        never.set()

    assert list(found) == []


@pytest.mark.parametrize(
    "line", ["eruca topic show ", f"eruca --namesrv={NOBODY} group lag ", "eruca pull x --broker "]
)
def test_the_shell_is_told_that_there_are_no_names(line: str) -> None:
    asked = {
        "_ERUCA_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
        "ERUCA_NAMESRV_URLS": NOBODY,
    }

    done = CliRunner().invoke(app, [], prog_name="eruca", env=asked)

    assert (done.exit_code, done.output.strip()) == (0, "")
