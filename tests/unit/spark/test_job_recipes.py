"""The recipes in JOBS.md: their commands are accepted, and their files are well-formed."""

from __future__ import annotations

import ast
import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer.main
import yaml

from eruca_spark.main import app

JOBS = (Path(__file__).parents[3] / "spark/JOBS.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", JOBS, re.DOTALL)


def parsed(words: list[str]) -> dict[str, Any]:
    """Return the options of a command line of ``eruca-spark``, parsed but not run."""
    command = typer.main.get_group(app).commands[words[0]]
    return dict(command.make_context(words[0], list(words[1:])).params)


def words_of(text: str) -> list[str]:
    """Return the words after the program's name."""
    words = shlex.split(text)
    [at] = [number for number, word in enumerate(words) if word.endswith("eruca-spark")]
    return words[at + 1 :]


def test_units_are_well_formed_and_their_command_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service, timer = (configparser.ConfigParser() for _ in range(2))
    for unit in (service, timer):
        unit.optionxform = str  # type: ignore[assignment,method-assign]
    service.read_string(blocks("ini")[0])
    timer.read_string(blocks("ini")[1])

    given = parsed(words_of(service["Service"]["ExecStart"]))
    assert (given["to"], given["topic"], given["output"]) == (
        "delta:/data/orders",
        ["orders"],
        "json",
    )
    assert service["Service"]["RestartPreventExitStatus"] == "1 2"
    assert timer["Timer"]["OnCalendar"]


def test_the_line_for_cron_is_accepted() -> None:
    [line] = blocks("text")
    assert parsed(words_of(line))["to"] == "delta:/data/orders"


def test_the_commands_of_the_dags_are_accepted() -> None:
    [source] = blocks("python")
    constants = {
        target.id: ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    assert parsed(words_of(constants["EXPORT"]))["nothing_new_code"] == 99
    assert parsed(constants["SUBMITTED"])["to"] == "delta:/data/orders"


def test_the_cron_job_is_valid_and_its_command_is_accepted() -> None:
    [text] = blocks("yaml")
    document = yaml.safe_load(text)
    kubernetes_validate.validate(document, "1.34", strict=True)

    pod = document["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    program, *words = pod["containers"][0]["command"]
    assert program == "eruca-spark"
    assert parsed(words)["to"] == "iceberg:lake.db.orders"
