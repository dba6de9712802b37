"""``python -m eruca_txn_checker``: run a transaction checker until a signal.

Set by ``ERUCA_TXN_CHECKER_*`` and ``DATABASE_URL``.
"""

from __future__ import annotations

import sys

from eruca_chassis.program import quick_imports


def main() -> None:
    """Read the settings and serve."""
    with quick_imports():
        from eruca_chassis.serving import run
        from eruca_chassis.settings import settings_or_exit
        from eruca_txn_checker.app import create_app
        from eruca_txn_checker.settings import TxnCheckerSettings
    settings = settings_or_exit(TxnCheckerSettings, sys.argv[1:])
    run(lambda: create_app(settings), settings, name="txn-checker")


if __name__ == "__main__":
    main()
