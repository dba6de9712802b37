"""``python -m eruca_controller``: run a controller, by ``ERUCA_CONTROLLER_*``, until a signal."""

from __future__ import annotations

import sys

from eruca_chassis.program import quick_imports


def main() -> None:
    """Read the settings and serve."""
    with quick_imports():
        from eruca_chassis.serving import run
        from eruca_chassis.settings import settings_or_exit
        from eruca_controller.app import create_app
        from eruca_controller.settings import ControllerSettings
    settings = settings_or_exit(ControllerSettings, sys.argv[1:])
    run(lambda: create_app(settings), settings, name="controller")


if __name__ == "__main__":
    main()
