"""``eruca-query``, or ``python -m eruca_query``: run a query service."""

from __future__ import annotations

from eruca_chassis.program import quick_imports


def main() -> None:
    """Do what the command line requests: serve, unless it requests something else."""
    with quick_imports():
        from eruca_chassis.command_line import run_program
        from eruca_query.app import create_app
        from eruca_query.settings import QuerySettings
    run_program(QuerySettings, create_app, name=lambda _: "query")


if __name__ == "__main__":
    main()
