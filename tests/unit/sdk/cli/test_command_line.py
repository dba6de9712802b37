"""The command line refuses invalid usage before it sends a request."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eruca.cli.app import app
from support.command_line import ERUCA


def refusal(*arguments: str) -> str:
    """Return what is said on stderr, without the frame around it and its line breaks."""
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    return " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["frobnicate"], "frobnicate"),
        (["topic", "create"], "TOPIC"),
        (["topic", "create", "x", "--queue-count=0"], "--queue-count"),
        (["topic", "create", "x", "--queue-count=1025"], "'--queue-count'"),
        (["group", "create", "x", "--retries-max=1001"], "'--retries-max'"),
        (["topic", "create", "x", "--permission=all"], "all"),
        (["--output=xml", "status"], "xml"),
        (["send", "hello"], "--topic"),
        (["send", "-t", "x", "hello", "--file=rows.csv"], "not both"),
        (["send", "-t", "x", "hello", "--tag-field=a"], "only rows have fields"),
        (["send", "-t", "x", "--tag-field=a"], "lines have no fields"),
        (["send", "-t", "x", "--format=xml"], "expected one of lines, jsonl, csv; found 'xml'"),
        (["send", "-t", "x", "y", "--property=z"], "expected NAME=VALUE, found 'z'"),
        (["send", "-t", "x", "y", "--property==z"], "expected NAME=VALUE, found '=z'"),
        (["tail", "x", "--start=whenever"], "found 'whenever'"),
        (["tail", "x", "--count=0"], "--count"),
        (["pull", "x", "--offset=-1"], "--offset"),
        (["pull", "x", "--offset=1", "--start=latest"], "--offset and --start exclude each other"),
        (["pull", "x", "--filter=a", "--sql=a > 1"], "--filter and --sql exclude each other"),
        (["tail", "x", "--filter=a", "--sql=a > 1"], "--filter and --sql exclude each other"),
        (["consume", "x", "-g", "y", "--filter=a", "--sql=a > 1"], "exclude each other"),
        (["log", "follow", "--start=somewhere"], "found 'somewhere'"),
        (
            ["message", "find", "-t", "x", "-k", "y", "--since=earliest"],
            "expected a time, found 'earliest'",
        ),
        (["message", "find", "-t", "x", "-k", "y", "--count=0"], "--count"),
        (["query", "key", "y"], "--topic"),
        (["query", "time", "-t", "x", "--since=latest"], "expected a time, found 'latest'"),
        (["query", "time", "-t", "x", "--until=soon"], "found 'soon'"),
        (["query", "time", "-t", "x", "--past"], "--past requires --group"),
    ],
)
def test_a_wrong_command_line_is_refused_by_name(arguments: list[str], named: str) -> None:
    assert named in refusal(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["topic", "create"],
        ["topic", "list"],
        ["topic", "show"],
        ["topic", "delete"],
        ["send"],
        ["tail"],
        ["pull"],
        ["message", "show"],
        ["message", "find"],
        ["group", "create"],
        ["group", "list"],
        ["group", "show"],
        ["group", "lag"],
        ["group", "reset"],
        ["group", "delete"],
        ["dlq", "list"],
        ["dlq", "show"],
        ["dlq", "redrive"],
        ["consume"],
        ["route"],
        ["status"],
        ["log", "follow"],
        ["query", "id"],
        ["query", "key"],
        ["query", "time"],
        ["query", "status"],
        ["query", "rebuild"],
        ["timeline"],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_every_command_explains_itself_and_takes_the_shared_options(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, [*arguments, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})

    assert done.exit_code == 0
    assert "--namesrv" in done.stdout
    assert "--output" in done.stdout


def test_the_version_is_the_packages() -> None:
    done = CliRunner().invoke(app, ["--version"])

    assert done.stdout == "eruca 0.1.0\n"


def test_a_setting_that_cannot_be_used_is_one_line_that_names_it() -> None:
    done = CliRunner().invoke(app, ["topic", "list"], env={"ERUCA_NAMESRV_URLS": "nonsense"})

    assert done.exit_code == 1
    assert done.stderr.startswith("error: ERUCA_NAMESRV_URLS: 'nonsense'")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [["--namesrv=", "topic", "list"], ["topic", "list", "--namesrv", ""], ["doctor", "--namesrv="]],
)
def test_an_empty_address_does_not_stand_for_the_environments(arguments: list[str]) -> None:
    environment = {"ERUCA_NAMESRV_URLS": "http://127.0.0.1:1"}

    done = CliRunner().invoke(app, arguments, env=environment)

    assert done.exit_code == 1
    assert "no URL of a name server is given" in done.output
    assert "127.0.0.1:1" not in done.output.replace("127.0.0.1:9876", "")


@pytest.mark.parametrize(
    ("file", "fault"),
    [("/nowhere/rows.csv", "No such file or directory"), ("/", "Is a directory")],
)
def test_a_file_that_cannot_be_read_is_one_line_that_names_it(file: str, fault: str) -> None:
    done = CliRunner().invoke(app, ["send", "--topic=x", f"--file={file}"])

    assert (done.exit_code, done.stderr) == (1, f"error: {file}: {fault}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["topic", "create", "-h"]])
def test_help_that_cannot_be_written_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [ERUCA, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )

    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


def test_without_the_extra_the_command_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['typer'] = None; sys.argv = ['eruca', 'topic', 'list'];"
        "from eruca.cli.main import run; run()"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: typer is not installed")
    assert line.endswith("pip install './sdk[cli,arrow]'")


def test_ctrl_c_while_the_command_is_loaded_ends_it_without_a_word() -> None:
    program = (
        "import signal, sys\n"
        # A shell's job in the background ignores it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'typer': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from eruca.cli.main import run; run()"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_help_loads_neither_http_nor_the_sdk() -> None:
    """It is typed often, and they take longer to load than everything else."""
    program = (
        "import sys, typer.testing; from eruca.cli.app import app;"
        "typer.testing.CliRunner().invoke(app, ['send', '--help']);"
        "print({'httpx', 'msgspec', 'numpy', 'eruca.aio.client'} & set(sys.modules))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "set()\n"
