"""``eruca-query``, or ``python -m eruca_query``: run a query service."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from eruca_chassis.running.program import quick_imports

if TYPE_CHECKING:
    from eruca_chassis.running.checking import Finding
    from eruca_query.settings import QuerySettings


def main() -> None:
    """Do what the command line requests: serve, unless it requests something else."""
    with quick_imports():
        from eruca_chassis.running.command_line import run_program
        from eruca_query.app import create_app
        from eruca_query.settings import QuerySettings
    run_program(QuerySettings, create_app, name=lambda _: "query", inspect=_inspect)


def _inspect(settings: QuerySettings) -> Iterable[Finding]:
    """Look at the store, for ``--check``."""
    from eruca_query.inspection import findings  # here: no start needs it

    return findings(settings)


if __name__ == "__main__":
    main()
