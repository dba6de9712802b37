"""``eruca-console``, or ``python -m eruca_console``: run a console."""

from __future__ import annotations

from eruca_chassis.program import quick_imports


def main() -> None:
    """Do what the command line requests: serve, unless it requests something else."""
    with quick_imports():
        from eruca_chassis.command_line import run_program
        from eruca_console.app import create_app
        from eruca_console.settings import ConsoleSettings
    run_program(ConsoleSettings, create_app, name=lambda _: "console")


if __name__ == "__main__":
    main()
