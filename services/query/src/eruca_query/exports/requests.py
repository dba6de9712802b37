"""Parse requests for exports: starts of queues, columns, and the form of the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from eruca.contract.errors import ErucaError, MalformedBodyError, ValidationError
from eruca.contract.exports import (
    ARROW_MEDIA_TYPE,
    EXPORT_COLUMNS,
    NDJSON_MEDIA_TYPE,
    DamagedRows,
    ExportCodec,
    ExportRange,
    ExportStart,
)
from eruca.contract.fields import OFFSET_MAX
from eruca.contract.limits import EXPORT_ROWS_MAX
from eruca_chassis.requests.json_members import check_members_once
from eruca_chassis.requests.negotiation import choose
from eruca_query.exports.planner import QueueName
from eruca_query.exports.workers.steps import RowForm

_OFFERED: Final = (ARROW_MEDIA_TYPE, NDJSON_MEDIA_TYPE)
_COLUMN_NAMES: Final = tuple(column.name for column in EXPORT_COLUMNS)
_QUEUE: Final = re.compile(r"([a-zA-Z0-9_.@-]{1,127})/([0-9]{1,10})\Z")
_Offset = Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]


_STARTS: Final = msgspec.json.Decoder(dict[str, _Offset | ExportStart])


def starts_of(text: str | None) -> dict[QueueName, ExportStart]:
    """Parse the starts of queues from a JSON object: ``{"broker-a/0": 1000}``.

    Instead of an offset there may be an object with values of an earlier plan, which prove it::

        {"broker-a/0": {"offset": 1000, "topic_id": "9f2c51d0-1044",
                        "latest_stored_at": "2026-11-21T08:00:09.871Z"}}

    Raises:
        ValidationError: The text is not such an object.
    """
    if text is None:
        return {}
    starts: dict[QueueName, ExportStart] = {}
    try:
        decoded = _STARTS.decode(text)
        check_members_once(text.encode(), decoded)
    except (msgspec.DecodeError, MalformedBodyError) as error:
        detail = (
            f'{error}; expected an object such as {{"broker-a/0": 1000}}, where 1000 may be an '
            f"object of offset, topic_id and latest_stored_at; found {text[:80]!r}"
        )
        raise _refusal("start", detail) from None
    for name, start in decoded.items():
        match = _QUEUE.match(name)
        if match is None:
            raise _refusal("start", f"expected a queue as BROKER/QUEUE, found {name[:80]!r}")
        queue = QueueName(match[1], int(match[2]))
        starts[queue] = ExportStart(start) if isinstance(start, int) else start
    return starts


def ranges_of(texts: Sequence[str]) -> list[ExportRange]:
    """Parse the ranges of a request.

    Raises:
        ValidationError: A text is not a range, or the ranges have too many rows together.
    """
    ranges: list[ExportRange] = []
    faults: list[dict[str, str]] = []
    for index, text in enumerate(texts):
        try:
            ranges.append(ExportRange.parse(text))
        except ValueError as error:
            detail = f"{error}; found {text[:80]!r}"
            faults.append({"pointer": f"/query/range/{index}", "detail": detail})
    if faults:
        raise ValidationError(
            f"{faults[0]['pointer']}: {faults[0]['detail']}",
            errors=faults[:_FAULTS_MAX],
            fix=_FIX,
        )
    rows = sum(a_range.rows for a_range in ranges)
    if rows > EXPORT_ROWS_MAX:
        raise _refusal("range", f"expected at most {EXPORT_ROWS_MAX} rows, found {rows}")
    return ranges


_FIX: Final = "use ranges of the topic's plan: GET /v1/exports/TOPIC/plan"
_FAULTS_MAX: Final = 32  # ranges that one error lists


def columns_of(text: str | None) -> Sequence[str]:
    """Parse the requested columns, in their order; return all columns if there is no request.

    Raises:
        ValidationError: A column is unknown, or is named twice.
    """
    if text is None:
        return _COLUMN_NAMES
    names = [name.strip() for name in text.split(",")]
    for index, name in enumerate(names):
        if name not in _COLUMN_NAMES:
            known = ", ".join(_COLUMN_NAMES)
            raise _refusal("columns", f"unknown column {name[:80]!r}; valid columns: {known}")
        if name in names[:index]:
            raise _refusal("columns", f"{name} is named twice")
    return names


def form_of(
    accept: str | None, columns: Sequence[str], codec: ExportCodec, damaged: DamagedRows
) -> RowForm:
    """Return the requested form of the answer.

    Raises:
        NotAcceptableError: None of the requested media types is available.
        ValidationError: The form has no such codec; or the column for marked damage is missing.
    """
    media_type = choose(None if accept is None else accept.encode("latin-1"), _OFFERED)
    if media_type != ARROW_MEDIA_TYPE and codec != "none":
        raise _refusal("codec", f"only {ARROW_MEDIA_TYPE} can be compressed, not {media_type}")
    if damaged == "mark" and "damage" not in columns:
        raise _refusal(
            "columns", "damaged=mark requires the column damage, which marks damaged rows"
        )
    return RowForm(media_type, tuple(columns), codec, damaged)


def _refusal(parameter: str, detail: str) -> ErucaError:
    pointer = f"/query/{parameter}"
    return ValidationError.at(pointer, detail, fix=_FIX)
