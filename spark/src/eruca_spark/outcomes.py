"""The result of a job for the program that runs it: exit codes, and a JSON document.

========  =====================================================================================
Code      Meaning
========  =====================================================================================
0         done; for an export also: nothing new, unless ``--nothing-new-code`` names another code
1         fault: a person has to look; an audit that finds something has this code, too
2         wrong usage, found before Spark starts
75        retry: run the same command again later; a service or a lock was not available
130       stopped by Ctrl-C; run the same command to continue
========  =====================================================================================

75 is ``EX_TEMPFAIL`` of ``sysexits.h``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final, Literal

import typer

from eruca.exporting.exported import Exported
from eruca_spark.failures import name_of, reason_of

DONE: Final = 0
FAULT: Final = 1
WRONG_USAGE: Final = 2
RETRY: Final = 75
INTERRUPTED: Final = 130

Outcome = Literal["done", "nothing_new", "interrupted", "retry", "fault"]

# Names, because an error of a task arrives as text.
_RETRYABLE: Final = frozenset({"LakeBusyError", "TableBusyError", "UnavailableError"})


def code_of(error_name: str) -> int:
    """Return the exit code for an error of the class *error_name*."""
    return RETRY if error_name in _RETRYABLE else FAULT


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome of a run that ended with an error."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return "retry" if code_of(name_of(error)) == RETRY else "fault"


def export_document(target: str, done: Exported, *, is_interrupted: bool = False) -> dict[str, Any]:
    """Return what an export did, as ``--output json`` prints it."""
    outcome: Outcome = "done" if done.has_found_messages else "nothing_new"
    if is_interrupted:
        outcome = "interrupted"
    return {"command": "export", "outcome": outcome, "target": target, **asdict(done)}


def error_document(command: str, error_name: str, text: str) -> dict[str, Any]:
    """Return what went wrong, as ``--output json`` prints it."""
    outcome: Outcome = "retry" if code_of(error_name) == RETRY else "fault"
    return {"command": command, "outcome": outcome, "error": error_name, "detail": text}


def line_of(document: dict[str, Any]) -> str:
    """Return a document as one line of JSON."""
    return json.dumps(document, ensure_ascii=False)


@contextmanager
def told_errors(command: str, *, is_told: bool) -> Iterator[None]:
    """Print an error as JSON, too, and let it go on."""
    try:
        yield
    except Exception as error:
        if is_told and not isinstance(error, typer.Exit):
            document = error_document(command, name_of(error), reason_of(error))
            sys.stdout.write(f"{line_of(document)}\n")
        raise
