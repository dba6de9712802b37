"""Turning what FastAPI finds wrong with a request into one of the contract's errors.

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

ERROR_COUNT_MAX: Final = 32  # entries of ``errors``; the first ones are the ones to mend first
VALUE_SIZE_MAX: Final = 80  # characters of a refused value that are shown
EXAMPLE_SIZE_MAX: Final = 300  # characters of an example; a longer one would hide what is wrong

_MESSAGES: Final = {  # in place of pydantic's, which speak of Python
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
    """Return the error for pydantic's list of *faults* in one request.

    Args:
        faults: At least one.
        content_type: What the client says the body is.
        example: A body that the operation takes; who sends another is shown it, unless it is long.
        body: What was sent, read as JSON; None: it was not read.
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
    """Return the error for a body that cannot even be taken apart: no UTF-8, nested too deep."""
    return MalformedBodyError(
        "the body could not be read as JSON", fix="send one JSON value, in UTF-8"
    )


def pointer_to(location: Sequence[str | int]) -> str:
    """Return the JSON Pointer to a place in a request, such as ``("query", "limit")``."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in location)


def _location(fault: Mapping[str, Any], body: object) -> Sequence[str | int]:
    """Return where in the request a fault is.

    Pydantic also names which kind it tried, where a value may be of several: that is no place.
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
        return "there is no such field"
    message = _MESSAGES.get(fault["type"], str(fault["msg"])).removeprefix("Value error, ")
    if fault["type"] == "missing":
        return message
    return f"{message}; got {_shown(fault.get('input'))}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= VALUE_SIZE_MAX else text[: VALUE_SIZE_MAX - 1] + "…"
