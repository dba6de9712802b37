"""``eruca-txn-checker``, or ``python -m eruca_txn_checker``: run a transaction checker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from eruca_chassis.running.program import quick_imports

if TYPE_CHECKING:
    from eruca_chassis.running.checking import Finding
    from eruca_txn_checker.settings import TxnCheckerSettings


def main() -> None:
    """Do what the command line requests: serve, unless it requests something else."""
    with quick_imports():
        from eruca_chassis.running.command_line import run_program
        from eruca_txn_checker.app import create_app
        from eruca_txn_checker.settings import TxnCheckerSettings
    run_program(TxnCheckerSettings, create_app, name=lambda _: "txn-checker", inspect=_inspect)


def _inspect(settings: TxnCheckerSettings) -> Iterable[Finding]:
    """Look at the store, for ``--check``."""
    from eruca_txn_checker.inspection import findings  # here: no start needs it

    return findings(settings)


if __name__ == "__main__":
    main()
