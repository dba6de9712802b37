"""Declare an operation's errors: build the ``responses=`` of a FastAPI route.

These declarations are documentation; the application sends the errors (:mod:`eruca_chassis.app`).
"""

from __future__ import annotations

from typing import Any, Final

from eruca.contract.errors import (
    PROBLEM_MEDIA_TYPE,
    ErucaError,
    NotMasterError,
    UnavailableError,
    ValidationError,
)
from eruca_chassis.documents.nulls import with_nulls

PROBLEM_REF: Final = "#/components/schemas/Problem"
PROBLEM_SCHEMA: Final[dict[str, Any]] = {
    "title": "Problem",
    "description": "A problem document of RFC 9457. Programs branch on `code`.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "request_id", "retryable", "fix"],
    "properties": {
        "type": {"type": "string", "description": "URL of this kind of problem's description"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "this occurrence of the problem"},
        "code": {"type": "string", "description": "stable; see /problems/{code}"},
        "request_id": {"type": ["string", "null"], "description": "find it in the service's log"},
        "retryable": {
            "type": "boolean",
            "description": "whether the same request may succeed later",
        },
        "fix": {"type": ["string", "null"], "description": "how to fix the problem"},
        "errors": {
            "type": "array",
            "description": "the values that were refused",
            "items": {
                "type": "object",
                "required": ["pointer", "detail"],
                "properties": {
                    "pointer": {"type": "string", "examples": ["/query/limit"]},
                    "detail": {"type": "string"},
                },
            },
        },
    },
}


def problems(*kinds: type[ErucaError]) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses=`` that declare *kinds*, with an example of each."""
    by_status: dict[int | str, dict[str, Any]] = {}
    for status in sorted({kind.status for kind in kinds}):
        of_status = [kind for kind in kinds if kind.status == status]
        by_status[status] = problem_response(*of_status)
    return by_status


def problem_response(*kinds: type[ErucaError]) -> dict[str, Any]:
    """Return the response object for *kinds*, which share one status."""
    examples = {kind.code: {"summary": kind.title, "value": _example(kind)} for kind in kinds}
    response: dict[str, Any] = {
        "description": "; or: ".join(kind.title for kind in kinds),
        "content": {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": PROBLEM_REF}, "examples": examples}},
    }
    if any(issubclass(kind, NotMasterError) for kind in kinds):
        response["headers"] = {
            "Location": {
                "description": "the same request at the master",
                "schema": {"type": "string", "format": "uri"},
            }
        }
    elif any(issubclass(kind, UnavailableError) for kind in kinds):
        response["headers"] = {
            "Retry-After": {"description": "seconds to wait", "schema": {"type": "integer"}}
        }
    return response


def _example(kind: type[ErucaError]) -> dict[str, Any]:
    refused = {"pointer": "/query/limit", "detail": "Input should be at least 1; got 0"}
    errors = [refused] if kind is ValidationError else []
    detail = (kind.__doc__ or kind.title).partition("\n")[0]
    example: dict[str, Any] = with_nulls(kind(detail, errors=errors).problem("4f1c9a7be20d3358"))
    return example
