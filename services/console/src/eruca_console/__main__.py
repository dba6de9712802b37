"""``python -m eruca_console``: a console, set by ``ERUCA_CONSOLE_*``, until a signal arrives."""

from __future__ import annotations

import sys

from eruca_chassis.program import quick_imports


def main() -> None:
    """Read the settings and serve."""
    with quick_imports():
        from eruca_chassis.serving import run
        from eruca_chassis.settings import settings_or_exit
        from eruca_console.app import create_app
        from eruca_console.settings import ConsoleSettings
    settings = settings_or_exit(ConsoleSettings, sys.argv[1:])
    run(lambda: create_app(settings), settings, name="console")


if __name__ == "__main__":
    main()
