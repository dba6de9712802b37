"""``python -m eruca_broker``: one broker, set by ``ERUCA_BROKER_*``, until it gets a signal."""

from __future__ import annotations

import sys

from eruca_chassis.program import quick_imports


def main() -> None:
    """Read the settings and serve."""
    with quick_imports():
        from eruca_broker.app import create_app
        from eruca_broker.settings import BrokerSettings
        from eruca_chassis.serving import run
        from eruca_chassis.settings import settings_or_exit
    settings = settings_or_exit(BrokerSettings, sys.argv[1:])
    run(lambda: create_app(settings), settings, name=f"broker {settings.name}")


if __name__ == "__main__":
    main()
