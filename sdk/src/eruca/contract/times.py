"""Times in answers: datetimes to programs, and texts of one length on the wire.

Requests may name a moment in any zone and to any digit; see :data:`eruca.contract.fields.Moment`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, PlainSerializer, WithJsonSchema

from eruca.contract.instant_texts import INSTANT_SCHEMA, instant_text

Instant = Annotated[
    AwareDatetime,
    PlainSerializer(instant_text, return_type=str, when_used="json"),
    WithJsonSchema(INSTANT_SCHEMA),
]
"""A time of every model's, written as :func:`eruca.contract.instant_texts.instant_text` does."""
