"""``python -m eruca_namesrv``: run a name server, set by ``ERUCA_NAMESRV_*``, until a signal."""

from __future__ import annotations

import sys

from eruca_chassis.program import quick_imports


def main() -> None:
    """Read the settings and serve."""
    with quick_imports():
        from eruca_chassis.serving import run
        from eruca_chassis.settings import settings_or_exit
        from eruca_namesrv.app import create_app
        from eruca_namesrv.settings import NamesrvSettings
    settings = settings_or_exit(NamesrvSettings, sys.argv[1:])
    run(lambda: create_app(settings), settings, name="namesrv")


if __name__ == "__main__":
    main()
