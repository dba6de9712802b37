"""Refuse query parameters that an operation does not have, or that are given twice.

Otherwise a typo in a filter's name, or a second value of a single one, would get the answer to
another question. And an option that belongs into the body, as in ``?dry_run=true``, would be
ignored. Operations outside the API, such as ``/readyz`` and ``/metrics``, ignore what a probe adds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from typing import Final, get_origin

from fastapi import Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query

from eruca.contract.errors import ValidationError
from eruca.contract.errors.shown import shown
from eruca_chassis.readiness import GATED_PREFIX
from eruca_chassis.requests.validation import ERROR_COUNT_MAX, pointer_to

_NONE_KNOWN: Final = "leave it out: this operation has no query parameters"


async def check_parameters(request: Request) -> None:
    """Check a request's query; a dependency of every FastAPI route.

    Raises:
        ValidationError: A parameter is unknown to the operation, or is repeated and not a list.
    """
    route = request.scope["route"]
    if not request.query_params or not route.path.startswith(GATED_PREFIX):
        return
    fields = [
        field for field in get_flat_params(route.dependant) if isinstance(field.field_info, Query)
    ]
    known = {field.alias for field in fields}
    lists = {field.alias for field in fields if get_origin(field.field_info.annotation) is list}
    check_names([name for name, _ in request.query_params.multi_items()], known, lists)


def check_names(given: Sequence[str], known: AbstractSet[str], lists: AbstractSet[str]) -> None:
    """Check the names of the parameters in a query.

    Args:
        given: Those of a request; one that is given twice, twice.
        known: Those of its operation.
        lists: Those that may be given several times.

    Raises:
        ValidationError: One is unknown to the operation, or is repeated and not a list.
    """
    if len(given) == 1 and given[0] in known:
        return
    wrong = [
        name
        for name, count in Counter(given).items()
        if name not in known or (count > 1 and name not in lists)
    ]
    if wrong:
        raise refused_parameters(wrong, known)


def refused_parameters(wrong: Sequence[str], known: Collection[str]) -> ValidationError:
    """Return the error for parameters that an operation does not have, or that are given twice."""
    errors = [
        {"pointer": pointer_to(("query", shown(name))), "detail": _fault(name, known)}
        for name in wrong[:ERROR_COUNT_MAX]  # close matches are expensive: bound their number
    ]
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return ValidationError(
        f"{errors[0]['pointer']}: {errors[0]['detail']}{more}",
        errors=errors,
        fix=f"valid parameters: {', '.join(sorted(known))}" if known else _NONE_KNOWN,
    )


def _fault(name: str, known: Collection[str]) -> str:
    if name in known:
        return "it is given twice"
    near = nearest_name(shown(name), known)
    return f"unknown parameter{f'; did you mean {near!r}?' if near else ''}"


def nearest_name(name: str, known: Collection[str]) -> str | None:
    """Return the known name that *name* is a slip for: the same words in another order come first.

    None: there is none. ``max_count`` and ``count_max`` have too few letters in line to be close.
    """
    words = sorted(name.split("_"))
    same_words = [one for one in known if sorted(one.split("_")) == words]
    return next(iter(same_words or get_close_matches(name, known, n=1)), None)
