"""``eruca-controller``, or ``python -m eruca_controller``: run a controller."""

from __future__ import annotations

from eruca_chassis.program import quick_imports


def main() -> None:
    """Do what the command line requests: serve, unless it requests something else."""
    with quick_imports():
        from eruca_chassis.command_line import run_program
        from eruca_controller.app import create_app
        from eruca_controller.settings import ControllerSettings
    run_program(ControllerSettings, create_app, name=lambda _: "controller")


if __name__ == "__main__":
    main()
