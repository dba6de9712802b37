"""A service's command line: its help lists all settings, and a mistake ends it with the fix."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path
from typing import NoReturn

import pytest

from eruca.services.http import credentials_of
from eruca_broker.settings import BrokerSettings
from eruca_chassis.running.command_line import SETTINGS_EXIT_CODE, Act, help_text, run_program
from eruca_chassis.running.known_settings import CREDENTIAL_VARIABLES, known_settings
from eruca_chassis.running.settings import ServiceSettings
from eruca_console.settings import ConsoleSettings
from eruca_controller.settings import ControllerSettings
from eruca_namesrv.settings import NamesrvSettings
from eruca_query.settings import QuerySettings
from eruca_txn_checker.settings import TxnCheckerSettings

KINDS: list[type[ServiceSettings]] = [
    BrokerSettings,
    ConsoleSettings,
    ControllerSettings,
    NamesrvSettings,
    QuerySettings,
    TxnCheckerSettings,
]


def never(_: ServiceSettings) -> NoReturn:
    raise AssertionError("a program that serves")


def ended(kind: type[ServiceSettings], *arguments: str) -> object:
    """Return the exit code of a program that does not serve."""
    with pytest.raises(SystemExit) as exited:
        run_program(kind, never, name=never, inspect=never, arguments=arguments)
    return exited.value.code


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [60, 120, 200])
def test_help_lists_every_setting_with_its_default_and_meaning(
    kind: type[ServiceSettings], width: int
) -> None:
    shown = help_text(kind, width)

    known = known_settings(kind).all
    assert {*kind.variables().values()} <= {setting.variable for setting in known}
    assert len({setting.key for setting in known}) == len(known)
    words = re.sub(r"\s+", " ", shown)
    for setting in known:
        found = re.search(rf"\s{setting.variable} .*", words)
        assert found, setting
        assert setting.default in found[0]
        assert setting.meaning
        assert all(word in found[0] for word in setting.meaning.split())


def test_help_has_columns_where_they_fit() -> None:
    columns = help_text(BrokerSettings, 140).splitlines()
    narrow = help_text(BrokerSettings, 80).splitlines()

    [line] = [line for line in columns if line.startswith("  ERUCA_BROKER_WARM_SEGMENTS ")]
    assert re.fullmatch(r"  ERUCA_BROKER_WARM_SEGMENTS +false  +write each new .*", line)
    assert "  ERUCA_BROKER_WARM_SEGMENTS  [false]" in narrow
    assert max(map(len, narrow)) <= 80


def test_help_and_version_read_no_setting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ERUCA_BROKER_PORT", "none")
    monkeypatch.setenv("COLUMNS", "100")

    assert ended(BrokerSettings, "--help") == 0
    assert capsys.readouterr().out == help_text(BrokerSettings, 100)
    assert ended(BrokerSettings, "--config", "missing.toml", "--version") == 0
    assert re.fullmatch(r"eruca-broker [0-9.]+\n", capsys.readouterr().out)


def test_an_act_gets_the_settings_and_its_options_and_serves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[tuple[int, dict[str, str]]] = []

    def repair(settings: ServiceSettings, options: Mapping[str, str]) -> int:
        done.append((settings.port, dict(options)))
        return 7

    act = Act(
        "--repair", "repair it", repair, {"--only": ("PART", "this one"), "--but": ("PART", "…")}
    )

    def code(*arguments: str) -> object:
        with pytest.raises(SystemExit) as exited:
            run_program(
                NamesrvSettings, never, name=never, inspect=never, acts=[act], arguments=arguments
            )
        return exited.value.code

    monkeypatch.setenv("ERUCA_NAMESRV_PORT", "1234")
    assert code("--repair") == 7
    assert code("--repair", "--only", "roof") == 7
    assert done == [(1234, {}), (1234, {"--only": "roof"})]
    assert code("--only", "roof") == SETTINGS_EXIT_CODE
    assert capsys.readouterr().err == "--only belongs to --repair: give both\n"
    assert code("--clean") == SETTINGS_EXIT_CODE
    assert "--check, --repair [--only PART] [--but PART]; settings" in capsys.readouterr().err
    assert code("--help") == 0
    words = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "--repair repair it --only PART this one --but PART …" in words
    assert len(done) == 2


@pytest.mark.parametrize("argument", ["--help", "--version"])
@pytest.mark.parametrize("is_open", [True, False])
def test_an_output_that_nobody_reads_ends_it_without_a_traceback(
    argument: str, is_open: bool
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = f"exec {sys.executable} -m eruca_namesrv {argument}{'' if is_open else ' >&-'}"

    ended = subprocess.run(
        ["sh", "-c", command], stdout=writing, stderr=subprocess.PIPE, check=False
    )

    os.close(writing)
    assert (ended.stderr, ended.returncode) == (b"", 1 if is_open else 0)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--port", "1"], "--port: unknown argument; valid arguments: --help, --version, "),
        (["--conf", "x"], "--conf: unknown argument; "),
        (["--database-url=postgresql://me:secret@host/x"], "--database-url: unknown argument; "),
        (["--config"], "argument --config: expected one argument; valid arguments: --help, "),
    ],
)
def test_an_unknown_argument_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], fault: str
) -> None:
    assert ended(NamesrvSettings, *arguments) == SETTINGS_EXIT_CODE

    assert capsys.readouterr().err.startswith(fault)


def test_wrong_settings_end_the_process_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ERUCA_NAMESRV_PORT", "x")

    assert ended(NamesrvSettings) == SETTINGS_EXIT_CODE

    assert capsys.readouterr().err.startswith("ERUCA_NAMESRV_PORT=x: ")


def test_a_wrong_setting_in_a_file_is_named_by_its_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "environ", {})
    file = tmp_path / "namesrv.toml"
    file.write_text("port = 99999\n")

    assert ended(NamesrvSettings, "--config", str(file)) == SETTINGS_EXIT_CODE
    assert capsys.readouterr().err.startswith(f"{file}: port=99999: ")

    file.write_text("prot = 1\n")
    assert ended(NamesrvSettings, f"--config={file}") == SETTINGS_EXIT_CODE
    assert capsys.readouterr().err == f"{file}: prot: unknown setting; did you mean port?\n"


def test_the_listed_credentials_are_those_that_the_sdk_reads() -> None:
    read: set[str] = set()

    class Recorded(dict[str, str]):
        def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
            read.add(name)
            return default

    credentials_of(Recorded())
    assert {name for name in read if name.startswith("ERUCA_")} == {*CREDENTIAL_VARIABLES}


@pytest.mark.parametrize("kind", KINDS)
def test_each_service_has_a_command_that_is_its_module(kind: type[ServiceSettings]) -> None:
    package = kind.__module__.partition(".")[0]
    [script] = distribution(package).entry_points.select(group="console_scripts")
    assert (script.name, script.value) == (package.replace("_", "-"), f"{package}.__main__:main")
    assert script.load() is import_module(f"{package}.__main__").main
