"""``eruca-txn-checker``, or ``python -m eruca_txn_checker``: run a transaction checker."""

from __future__ import annotations

from eruca_chassis.program import quick_imports


def main() -> None:
    """Do what the command line requests: serve, unless it requests something else."""
    with quick_imports():
        from eruca_chassis.command_line import run_program
        from eruca_txn_checker.app import create_app
        from eruca_txn_checker.settings import TxnCheckerSettings
    run_program(TxnCheckerSettings, create_app, name=lambda _: "txn-checker")


if __name__ == "__main__":
    main()
