"""Questions on a terminal, which is a pseudo-terminal here."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
from collections.abc import Iterator
from typing import Final, NoReturn

import pytest
import typer

from eruca.cli.asking import confirmed

pytestmark = pytest.mark.anyio

END: Final = "\x04"  # Ctrl-D


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Return the descriptor at which is typed what stdin reads."""
    typed, read = pty.openpty()
    with os.fdopen(read, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield typed
    os.close(typed)


@pytest.fixture(params=["waits", "cannot wait"])
def event_loop_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an event loop as that of Windows, too: it cannot wait for a terminal."""

    def refuse(*_: object) -> NoReturn:
        raise NotImplementedError

    if request.param == "cannot wait":
        monkeypatch.setattr(asyncio.SelectorEventLoop, "add_reader", refuse)


@pytest.mark.usefixtures("event_loop_kind")
@pytest.mark.parametrize(("typed", "is_yes"), [("y\n", True), ("no\n", False), ("?\nYES\n", True)])
async def test_an_answer_is_read(keyboard: int, typed: str, *, is_yes: bool) -> None:
    os.write(keyboard, typed.encode())

    assert await confirmed("Delete it?") is is_yes


@pytest.mark.usefixtures("event_loop_kind")
async def test_the_end_of_the_input_aborts(keyboard: int) -> None:
    os.write(keyboard, END.encode())

    with pytest.raises(typer.Abort):
        await confirmed("Delete it?")
