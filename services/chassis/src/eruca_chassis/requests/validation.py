"""Convert FastAPI's validation faults to the contract's errors.

Each entry of ``errors`` names one value by a JSON Pointer whose first segment is the part of the
request: ``/body/urls/default``, ``/query/limit``, ``/path/name``, ``/header/if-none-match``.

Source: RFC 9457 section 3.2, RFC 6901.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from eruca.contract.errors import (
    ErucaError,
    MalformedBodyError,
    UnsupportedMediaTypeError,
    ValidationError,
)
from eruca.contract.errors.shown import shown

ERROR_COUNT_MAX: Final = 32  # entries of ``errors``; the first are the ones to fix first
EXAMPLE_SIZE_MAX: Final = 300  # characters of an example; a longer one would hide the fault

_MESSAGES: Final = {  # instead of pydantic's, which name Python types
    "model_attributes_type": "Input should be an object",
    "model_type": "Input should be an object",
    "dict_type": "Input should be an object",
}


def error_of_faults(
    faults: Sequence[Mapping[str, Any]],
    content_type: str | None,
    example: object = None,
    *,
    body: object = None,
) -> ErucaError:
    """Convert pydantic's list of *faults* in one request to an error.

    Args:
        faults: At least one.
        content_type: The body's media type, as sent by the client.
        example: A valid body, shown in the error unless it is long.
        body: The parsed body; None if it was not parsed.
    """
    first = faults[0]
    shown = "" if example is None else json.dumps(example, ensure_ascii=False)
    if len(shown) > EXAMPLE_SIZE_MAX:
        shown = ""
    if first["type"] == "json_invalid":
        why = first.get("ctx", {}).get("error", "not JSON")
        return MalformedBodyError(
            f"the body is not JSON: {why} (at character {first['loc'][-1]})",
            fix=f"send one JSON value, in UTF-8{f', such as {shown}' if shown else ''}",
        )
    body_unread = tuple(first["loc"]) == ("body",) and isinstance(first.get("input"), bytes)
    if body_unread and not _is_json(content_type):
        return UnsupportedMediaTypeError(
            f"this operation takes application/json, not {content_type or 'an unnamed type'}",
            fix="set the header Content-Type: application/json",
        )
    errors = [
        {"pointer": pointer_to(_location(fault, body)), "detail": _detail(fault)}
        for fault in faults[:ERROR_COUNT_MAX]
    ]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    fix = "correct the values that `errors` points at; /openapi.json has their limits"
    if shown and first["loc"][0] == "body":
        fix = f"send, for example, {shown}; /openapi.json has every field and its limits"
    return ValidationError(
        f"{errors[0]['pointer']}: {errors[0]['detail']}{more}", errors=errors, fix=fix
    )


def unreadable_body() -> MalformedBodyError:
    """Return the error for a body that cannot be parsed at all: not UTF-8, or nested too deep."""
    return MalformedBodyError(
        "the body cannot be parsed as JSON", fix="send one JSON value, in UTF-8"
    )


def pointer_to(location: Sequence[str | int]) -> str:
    """Return the JSON Pointer to a place in a request, such as ``("query", "limit")``."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in location)


def _location(fault: Mapping[str, Any], body: object) -> Sequence[str | int]:
    """Return a fault's place in the request.

    For a value of several possible types pydantic adds the type it tried, which is not a place.
    """
    location: Sequence[str | int] = fault["loc"]
    if location[0] != "body" or body is None:
        return location
    found: list[str | int] = ["body"]
    value: Any = body
    for part in location[1:]:
        if isinstance(value, dict):
            is_there = part in value
        else:
            is_there = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if is_there:
            found.append(part)
            value = value[part]
    return [*found, location[-1]] if fault["type"] == "missing" else found


def _is_json(content_type: str | None) -> bool:
    media_type = (content_type or "").partition(";")[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")


def _detail(fault: Mapping[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        return "unknown field"
    message = _MESSAGES.get(fault["type"], str(fault["msg"])).removeprefix("Value error, ")
    if fault["type"] == "missing":
        return message
    return f"{message}; got {_shown(fault.get('input'))}"


def _shown(value: object) -> str:
    return shown(json.dumps(value, ensure_ascii=False, default=repr))
