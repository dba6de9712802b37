"""Times as JSON has them: texts of several lengths, whose order is not that of the times."""

from __future__ import annotations

from datetime import datetime


def moment(text: str) -> datetime:
    """Return the time that *text* tells, to be compared with others."""
    return datetime.fromisoformat(text)
