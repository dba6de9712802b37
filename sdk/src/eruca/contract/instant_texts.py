"""Write the times of answers: RFC 3339, in UTC, to the millisecond.

All such texts have one length, as in ``2026-11-22T10:00:00.000Z``, so they sort as texts. This
module is separate from :mod:`eruca.contract.times`, which needs pydantic: the modules that send and
receive messages do not import pydantic.
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
"""A time in an answer that holds texts; decoding does not validate it, since a service wrote it."""


def instant_text(moment: datetime) -> str:
    """Return the text of an aware datetime on the wire, truncated to the millisecond."""
    assert moment.tzinfo is not None, "expected an aware datetime"
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"
