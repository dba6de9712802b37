"""``eruca-query --check``: look at the database, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator

from eruca_chassis.running.checking import Finding
from eruca_postgres import inspection
from eruca_query.settings import QuerySettings
from eruca_query.wiring import KIND


def findings(settings: QuerySettings) -> Iterator[Finding]:
    """Yield what a start would find in the database."""
    return inspection.findings(settings, KIND.schema, KIND.migrations)
