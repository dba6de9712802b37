"""Problem documents (RFC 9457), read: whatever one tells of becomes an error of the tree again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from eruca.contract.errors.base import ErucaError, every_error
from eruca.contract.errors.client import ClientError
from eruca.contract.errors.not_found import NotFoundError
from eruca.contract.errors.refusals import AlreadyDecidedError
from eruca.contract.errors.requests import FilterSyntaxError, RequestError
from eruca.contract.errors.service import InternalError, OverloadedError, UnavailableError

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"

_BY_CODE: Final = {kind.code: kind for kind in every_error() if not issubclass(kind, ClientError)}


def error_of_problem(
    document: Mapping[str, Any], status: int, *, retry_after_seconds: float | None = None
) -> ErucaError:
    """Return the error a problem document tells of; for an unknown code the nearest kind.

    The document may come from a proxy and hold anything: what is not of its type is left out.
    """
    code = document.get("code")
    kind = _BY_CODE.get(code) if isinstance(code, str) else None
    if kind is None:
        kind = _kind_of_status(status)
    detail = document.get("detail") or document.get("title") or f"HTTP status {status}"
    position, excerpt = document.get("position"), document.get("excerpt")
    if kind is FilterSyntaxError:
        return FilterSyntaxError(
            str(detail),
            position=position if isinstance(position, int) else None,
            excerpt=_text(excerpt),
            fix=_text(document.get("fix")),
            errors=_field_errors(document.get("errors")),
            request_id=_text(document.get("request_id")),
            retry_after_seconds=retry_after_seconds,
        )
    if kind is AlreadyDecidedError:
        decision = document.get("decision")
        return AlreadyDecidedError(
            str(detail),
            decision=decision if isinstance(decision, dict) else None,
            fix=_text(document.get("fix")),
            errors=_field_errors(document.get("errors")),
            request_id=_text(document.get("request_id")),
            retry_after_seconds=retry_after_seconds,
        )
    return kind(
        str(detail),
        fix=_text(document.get("fix")),
        errors=_field_errors(document.get("errors")),
        request_id=_text(document.get("request_id")),
        retry_after_seconds=retry_after_seconds,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _field_errors(value: object) -> list[dict[str, str]]:
    entries = value if isinstance(value, list) else []
    return [
        {str(name): str(text) for name, text in entry.items()}
        for entry in entries
        if isinstance(entry, dict)
    ]


def _kind_of_status(status: int) -> type[ErucaError]:
    if status == 404:
        return NotFoundError
    if status == 429:
        return OverloadedError
    if status in (502, 503, 504):
        return UnavailableError
    return InternalError if status >= 500 else RequestError
