"""``eruca-namesrv``, or ``python -m eruca_namesrv``: run a name server."""

from __future__ import annotations

from eruca_chassis.program import quick_imports


def main() -> None:
    """Do what the command line requests: serve, unless it requests something else."""
    with quick_imports():
        from eruca_chassis.command_line import run_program
        from eruca_namesrv.app import create_app
        from eruca_namesrv.settings import NamesrvSettings
    run_program(NamesrvSettings, create_app, name=lambda _: "namesrv")


if __name__ == "__main__":
    main()
