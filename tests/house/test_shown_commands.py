"""Commands that the documents show exist: those of ``eruca``, with their options, and of make."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from eruca.cli.app import app
from support.documents import ROOT, blocks, name_of, pages, translations

DOCUMENTS = sorted(
    {*pages(), *ROOT.glob("*.md"), *(ROOT / "services").glob("*/*.md")}
    | {twin for _, twin in translations()}
)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
OUTLINED = re.compile(r"`((?:eruca|make) [^`]+)`")


def shown(document: Path) -> Iterator[list[str]]:
    """Yield the words of each command: at a prompt, in a pipe, or in a sentence."""
    lines = [
        line.removeprefix("$ ")
        for block in blocks(document)
        if block.language == "console"
        for line in block.text.replace("\\\n", " ").splitlines()
        if line.startswith("$ ")
    ]
    prose = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    for line in (*lines, *(found.replace("\n", " ") for found in OUTLINED.findall(prose))):
        words: list[str] = []
        for word in (*shlex.split(line, comments=True), "|"):
            if word != "|":
                words.append(word)
            elif words:
                yield words
                words = []


def unknown_in(words: list[str]) -> list[str]:
    """Return the words of a call of ``eruca`` that name no command and no option."""
    command: Any = typer.main.get_command(app)
    known = {"--help", "--install-completion", "--version"}
    unknown = []
    for word in words[1:]:
        name = word.partition("=")[0]
        known |= {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
        if name.startswith("-"):
            unknown += [] if name in known else [word]
        elif hasattr(command, "commands") and not word.isupper():  # COMMAND stands for any
            if word not in command.commands:
                return [word]
            command = command.commands[word]
    return unknown


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_the_commands_that_a_document_shows_exist(document: Path) -> None:
    for words in shown(document):
        if words[0] == "eruca":
            assert unknown_in(words) == [], " ".join(words)
        elif words[0] == "make" and "=" not in words[1]:
            assert words[1] in TARGETS, " ".join(words)


def test_commands_are_found() -> None:
    calls = [words for document in DOCUMENTS for words in shown(document)]

    assert ["eruca", "dlq", "list", "billing"] in calls
    assert ["make", "up"] in calls
    assert unknown_in(["eruca", "topic", "make"]) == ["make"]
    assert unknown_in(["eruca", "topic", "create", "--colour=red"]) == ["--colour=red"]
