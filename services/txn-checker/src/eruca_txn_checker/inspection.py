"""``eruca-txn-checker --check``: look at the database, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator

from eruca_chassis.running.checking import Finding
from eruca_postgres import inspection
from eruca_txn_checker.settings import TxnCheckerSettings
from eruca_txn_checker.wiring import KIND


def findings(settings: TxnCheckerSettings) -> Iterator[Finding]:
    """Yield what a start would find in the database."""
    return inspection.findings(settings, KIND.schema, KIND.migrations)
