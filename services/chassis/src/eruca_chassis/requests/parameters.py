"""Query parameters that an operation does not have, or that are given twice, are refused.

A slip in the name of a filter, or a second value where one counts, would otherwise be an answer to
another question; and what belongs into the body, as ``?dry_run=true``, would be done after all. The
operations beside the API, such as ``/readyz`` and ``/metrics``, take what a probe adds to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from difflib import get_close_matches
from typing import Final, get_origin

from fastapi import Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query

from eruca.contract.errors import ValidationError
from eruca_chassis.readiness import GATED_PREFIX
from eruca_chassis.requests.validation import ERROR_COUNT_MAX, VALUE_SIZE_MAX, pointer_to

_NONE_KNOWN: Final = "leave it out: this operation has no parameters in its query"


async def check_parameters(request: Request) -> None:
    """Look at a request's query, as a dependency of every route of FastAPI's.

    Raises:
        ValidationError: A parameter is none of the operation's, or is given twice and is no list.
    """
    route = request.scope["route"]
    if not request.query_params or not route.path.startswith(GATED_PREFIX):
        return
    fields = [
        field for field in get_flat_params(route.dependant) if isinstance(field.field_info, Query)
    ]
    known = {field.alias for field in fields}
    lists = {field.alias for field in fields if get_origin(field.field_info.annotation) is list}
    counts = Counter(name for name, _ in request.query_params.multi_items())
    wrong = [
        name
        for name, count in counts.items()
        if name not in known or (count > 1 and name not in lists)
    ]
    if not wrong:
        return
    errors = [
        {"pointer": pointer_to(("query", _shown(name))), "detail": _fault(name, known)}
        for name in wrong[:ERROR_COUNT_MAX]  # each costs more than it cost to write
    ]
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    raise ValidationError(
        f"{errors[0]['pointer']}: {errors[0]['detail']}{more}",
        errors=errors,
        fix=f"use {', '.join(sorted(known))}" if known else _NONE_KNOWN,
    )


def _fault(name: str, known: Collection[str]) -> str:
    if name in known:
        return "it is given twice"
    close = get_close_matches(_shown(name), known, n=1)
    return f"there is no such parameter{f'; is {close[0]!r} meant?' if close else ''}"


def _shown(name: str) -> str:
    return name if len(name) <= VALUE_SIZE_MAX else name[: VALUE_SIZE_MAX - 1] + "…"
