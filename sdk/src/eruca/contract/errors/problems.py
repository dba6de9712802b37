"""Turn problem documents (RFC 9457) back into errors of the tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from eruca.contract.errors.access import AccessError, ForbiddenError, UnauthenticatedError
from eruca.contract.errors.base import ErucaError, every_error
from eruca.contract.errors.not_found import NotFoundError
from eruca.contract.errors.refusals import RefusedError
from eruca.contract.errors.requests import RequestError, TooLargeError
from eruca.contract.errors.service import InternalError, OverloadedError, UnavailableError

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"

_BRANCHES: Final = (  # that are sent
    RequestError,
    RefusedError,
    AccessError,
    UnavailableError,
    InternalError,
)
_BY_CODE: Final = {ErucaError.code: ErucaError} | {
    kind.code: kind for branch in _BRANCHES for kind in every_error(branch)
}


def error_of_problem(
    document: Mapping[str, Any], status: int, *, retry_after_seconds: float | None = None
) -> ErucaError:
    """Return the error of a problem document; for an unknown code, the nearest class.

    A proxy may have made the document: members of an unexpected type are ignored.
    """
    code = document.get("code")
    kind = _BY_CODE.get(code) if isinstance(code, str) else None
    if kind is None:
        kind = _kind_of_status(status)
    detail = document.get("detail") or document.get("title") or f"HTTP status {status}"
    return kind(
        str(detail),
        fix=_text(document.get("fix")),
        errors=_field_errors(document.get("errors")),
        request_id=_text(document.get("request_id")),
        retry_after_seconds=retry_after_seconds,
        **kind.extension_members(document),
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
    if status == 401:
        return UnauthenticatedError
    if status == 403:
        return ForbiddenError
    if status == 404:
        return NotFoundError
    if status == 413:
        return TooLargeError
    if status == 429:
        return OverloadedError
    if status in (502, 503, 504):
        return UnavailableError
    return InternalError if status >= 500 else RequestError
