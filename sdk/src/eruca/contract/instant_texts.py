"""How a time is written in answers: RFC 3339, in UTC, to the millisecond.

As in ``2026-11-22T10:00:00.000Z``: all are of one length, so they sort as texts. Beside
:mod:`eruca.contract.times`, which needs pydantic; what sends and receives messages does without.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta

INSTANT_PATTERN: Final = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$"
INSTANT_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "format": "date-time",
    "pattern": INSTANT_PATTERN,
}

InstantText: TypeAlias = Annotated[str, Meta(extra_json_schema=INSTANT_SCHEMA)]
"""A time in an answer that is encoded from texts; decoding it checks nothing, for it is ours."""


def instant_text(moment: datetime) -> str:
    """Return an aware datetime as it is on the wire; what is finer than a millisecond is cut."""
    assert moment.tzinfo is not None, "a time without a zone is no moment"
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"
