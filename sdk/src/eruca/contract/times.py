"""Times in answers: datetimes in programs, texts of one length on the wire.

A request's time may have any zone and any precision; see :data:`eruca.contract.fields.Moment`.
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
"""A time in an answer, in the form of :func:`eruca.contract.instant_texts.instant_text`."""
