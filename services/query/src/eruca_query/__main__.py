"""``python -m eruca_query``: a query service, set by ``ERUCA_QUERY_*``, until a signal arrives."""

from __future__ import annotations

import sys

from eruca_chassis.program import quick_imports


def main() -> None:
    """Read the settings and serve."""
    with quick_imports():
        from eruca_chassis.serving import run
        from eruca_chassis.settings import settings_or_exit
        from eruca_query.app import create_app
        from eruca_query.settings import QuerySettings
    settings = settings_or_exit(QuerySettings, sys.argv[1:])
    run(lambda: create_app(settings), settings, name="query")


if __name__ == "__main__":
    main()
