"""Query parameters that an operation does not have are refused.

A slip in the name of a filter would otherwise be an answer to another question. An operation that
has no parameters at all takes any: there is nothing that they could have meant.
"""

from __future__ import annotations

from difflib import get_close_matches

from fastapi import Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query

from eruca.contract.errors import ValidationError


async def check_parameters(request: Request) -> None:
    """Look at a request's query, as a dependency of every route of FastAPI's.

    Raises:
        ValidationError: A parameter is none of the operation's.
    """
    if not request.query_params:
        return
    fields = get_flat_params(request.scope["route"].dependant)
    known = [field.alias for field in fields if isinstance(field.field_info, Query)]
    unknown = [name for name in request.query_params if name not in known]
    if not known or not unknown:
        return
    errors = [
        {"pointer": f"/query/{name}", "detail": f"there is no such parameter{_meant(name, known)}"}
        for name in unknown
    ]
    raise ValidationError(
        f"{errors[0]['pointer']}: {errors[0]['detail']}",
        errors=errors,
        fix=f"use {', '.join(sorted(known))}",
    )


def _meant(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; is {close[0]!r} meant?" if close else ""
