"""``eruca-console``, or ``python -m eruca_console``: run a console."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from eruca_chassis.running.program import quick_imports

if TYPE_CHECKING:
    from eruca_chassis.running.checking import Finding
    from eruca_console.settings import ConsoleSettings


def main() -> None:
    """Do what the command line requests: serve, unless it requests something else."""
    with quick_imports():
        from eruca_chassis.running.command_line import run_program
        from eruca_console.app import create_app
        from eruca_console.settings import ConsoleSettings
    run_program(ConsoleSettings, create_app, name=lambda _: "console", inspect=_inspect)


def _inspect(settings: ConsoleSettings) -> Iterable[Finding]:
    """Return nothing: a console has no store, and finds the cluster when it is asked for it."""
    return ()


if __name__ == "__main__":
    main()
