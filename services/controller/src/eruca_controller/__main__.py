"""``eruca-controller``, or ``python -m eruca_controller``: run a controller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from eruca_chassis.running.program import quick_imports

if TYPE_CHECKING:
    from eruca_chassis.running.checking import Finding
    from eruca_controller.settings import ControllerSettings


def main() -> None:
    """Do what the command line requests: serve, unless it requests something else."""
    with quick_imports():
        from eruca_chassis.running.command_line import run_program
        from eruca_controller.app import create_app
        from eruca_controller.settings import ControllerSettings
    run_program(ControllerSettings, create_app, name=lambda _: "controller", inspect=_inspect)


def _inspect(settings: ControllerSettings) -> Iterable[Finding]:
    """Look at the store, for ``--check``."""
    from eruca_controller.inspection import findings  # here: no start needs it

    return findings(settings)


if __name__ == "__main__":
    main()
