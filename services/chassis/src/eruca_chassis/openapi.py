"""Finishing a service's OpenAPI document: what FastAPI leaves out or says wrongly.

Every operation can be refused by the chassis itself, so those problems are declared here once: 400
and 413 and 415 where there is a body, 422 where there is anything to check, 503 for what waits
until the service is ready. FastAPI's own 422 schema, which is never sent, is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from eruca.contract.errors import (
    MalformedBodyError,
    NotReadyError,
    TooLargeError,
    UnsupportedMediaTypeError,
    ValidationError,
)
from eruca_chassis.problems import PROBLEM_SCHEMA, problems

_METHODS: Final = frozenset({"get", "put", "post", "delete", "patch", "head", "options"})
_FASTAPI_SCHEMAS: Final = ("HTTPValidationError", "ValidationError")
_FOR_BODIES: Final = (MalformedBodyError, TooLargeError, UnsupportedMediaTypeError)


def finish(document: dict[str, Any], *, gated_prefix: str) -> dict[str, Any]:
    """Complete *document* in place and return it."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in _FASTAPI_SCHEMAS:
        schemas.pop(name, None)
    schemas["Problem"] = PROBLEM_SCHEMA
    for path, operation in _operations(document):
        responses = operation.setdefault("responses", {})
        if "HTTPValidationError" in str(responses.get("422")):
            del responses["422"]
        implied: dict[int | str, dict[str, Any]] = {}
        if "requestBody" in operation:
            implied |= problems(*_FOR_BODIES)
        if "requestBody" in operation or operation.get("parameters"):
            implied |= problems(ValidationError)
        if path.startswith(gated_prefix):
            implied |= problems(NotReadyError)
        for status, response in implied.items():
            responses.setdefault(str(status), response)
        operation["responses"] = dict(sorted(responses.items()))
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document.get("paths", {}).items():
        for method, operation in item.items():
            if method in _METHODS:
                yield path, operation
