"""``eruca-namesrv``, or ``python -m eruca_namesrv``: run a name server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from eruca_chassis.running.program import quick_imports

if TYPE_CHECKING:
    from eruca_chassis.running.checking import Finding
    from eruca_namesrv.settings import NamesrvSettings


def main() -> None:
    """Do what the command line requests: serve, unless it requests something else."""
    with quick_imports():
        from eruca_chassis.running.command_line import run_program
        from eruca_namesrv.app import create_app
        from eruca_namesrv.settings import NamesrvSettings
    run_program(NamesrvSettings, create_app, name=lambda _: "namesrv", inspect=_inspect)


def _inspect(settings: NamesrvSettings) -> Iterable[Finding]:
    """Look at the store, for ``--check``."""
    from eruca_namesrv.inspection import findings  # here: no start needs it

    return findings(settings)


if __name__ == "__main__":
    main()
