"""``eruca doctor``: find faults between here and a stored message."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Final

import typer

from eruca.cli.command import EXIT_FAILED, command
from eruca.cli.counts import counted
from eruca.cli.session import Session, output_console

if TYPE_CHECKING:
    from rich.text import Text

    from eruca.cli.diagnosing.findings import Finding

_MARKS: Final = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "fault": ("✗", "red")}
_PLAIN_MARKS: Final = {"✓": "+", "!": "!", "✗": "-"}  # for an encoding that lacks the marks
_SUBJECT_WIDTH: Final = 24
_CHECK_WIDTH: Final = 15


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "doctor")(doctor)


async def doctor(
    session: Session,
    *,
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="Also send a message through each broker, on a temporary topic."
        ),
    ] = False,
) -> int:
    """Check each step from here to a stored message; report faults and their fixes.

    Exit code 1 if something is broken; warnings do not count.
    """
    # Imported when it runs: httpx and pydantic would delay --help.
    from eruca.cli.diagnosing.diagnosis import examine
    from eruca.cli.diagnosing.findings import is_healthy

    console = output_console()
    found = []
    async for finding in examine(session.namesrv_urls, session.credentials(), write=write):
        found.append(finding)
        if not session.is_json:
            console.print(_shown(finding, is_plain=not console.encoding.startswith("utf")))
    healthy = is_healthy(found)
    if session.is_json:
        session.show_json({"healthy": healthy, "findings": found})
    else:
        counts = Counter(str(finding.verdict) for finding in found)
        session.say(
            f"{counted(len(found), 'check')}: {counts['ok']} ok, "
            f"{counted(counts['warning'], 'warning')}, {counted(counts['fault'], 'fault')}"
        )
    return 0 if healthy else EXIT_FAILED


def _shown(finding: Finding, *, is_plain: bool) -> Text:
    from rich.text import Text

    mark, colour = _MARKS[finding.verdict]
    text = Text(f"{_PLAIN_MARKS[mark] if is_plain else mark} ", style=colour)
    text.append(f"{finding.subject:<{_SUBJECT_WIDTH}} {finding.check:<{_CHECK_WIDTH}} ", "default")
    text.append(finding.detail, "default" if mark == "✓" else colour)
    if finding.fix is not None:
        text.append(f"\n  to fix it: {finding.fix}", "bold default")
    return text
