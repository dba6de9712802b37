"""Finish a service's OpenAPI document: add what FastAPI omits, and correct what it gets wrong.

The chassis itself can refuse any operation, so these problems are declared here once: 400, 413, 415
and 429 for operations with a body; 401 and 403 for a caller without the right, and 429 for one that
has used up its quota, unless the operation is public; 421 for a Host that is not the service's; 403
for a foreign site's page; 422 for any input, and every API operation has a query; 503 until the
service is ready. What each operation needs of its caller becomes its `security` and its
`x-eruca-right` (:mod:`~eruca_chassis.admission.needs`). FastAPI's own 422 schema, which is never
sent, is removed. Examples are moved to the place where explorers look for them, beside their schema
and not inside. Schemas that FastAPI does not know are added
(:mod:`~eruca_chassis.documents.schemas`). Forms that break code generators are rewritten
(:mod:`~eruca_chassis.documents.portable`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from eruca.contract.errors import (
    PROBLEM_MEDIA_TYPE,
    CrossSiteError,
    ErucaError,
    ForbiddenError,
    MalformedBodyError,
    NotReadyError,
    OverloadedError,
    QuotaExceededError,
    TooLargeError,
    UnauthenticatedError,
    UnknownHostError,
    UnsupportedMediaTypeError,
    ValidationError,
)
from eruca.contract.wire import JSON_MEDIA_TYPE
from eruca_chassis.admission.cross_origin import HARMLESS_METHODS
from eruca_chassis.admission.needs import SCHEMES, Needs
from eruca_chassis.documents.nulls import nulls_put_back, with_nulls
from eruca_chassis.documents.portable import make_portable
from eruca_chassis.documents.problems import PROBLEM_SCHEMA, problems
from eruca_chassis.documents.schemas import Content, Kind, add_schemas, described, in_json

_METHODS: Final = frozenset({"get", "put", "post", "delete", "patch", "head", "options"})
_FASTAPI_SCHEMAS: Final = ("HTTPValidationError", "ValidationError")
_FOR_BODIES: Final = (
    MalformedBodyError,
    TooLargeError,
    UnsupportedMediaTypeError,
)


def finish(
    document: dict[str, Any],
    *,
    gated_prefix: str,
    needs: Mapping[str, Needs],
    is_closed: bool = False,
) -> dict[str, Any]:
    """Complete *document* in place; return it.

    Args:
        document: As FastAPI made it.
        gated_prefix: Of the paths that are refused until the service is ready.
        needs: What each operation needs of its caller, by the operation's id.
        is_closed: Whether the service refuses requests without credentials.
    """
    document["components"] = document.get("components", {}) | {"securitySchemes": SCHEMES}
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in _FASTAPI_SCHEMAS:
        schemas.pop(name, None)
    schemas["Problem"] = PROBLEM_SCHEMA
    for path, method, operation in _operations(document):
        _put_examples_beside_schemas(operation)
        responses = operation.setdefault("responses", {})
        if "HTTPValidationError" in str(responses.get("422")):
            del responses["422"]
        needed = needs[operation["operationId"]]
        operation.update(needed.document(are_required=is_closed))
        implied = problems(UnknownHostError)
        if not needed.is_public:
            implied |= problems(UnauthenticatedError)
        if "requestBody" in operation:
            implied |= problems(*_FOR_BODIES)
        of_429: tuple[type[ErucaError], ...] = () if needed.is_public else (QuotaExceededError,)
        if "requestBody" in operation:
            of_429 = (OverloadedError, *of_429)
        implied |= problems(*of_429)
        of_403: tuple[type[ErucaError], ...] = () if needed.is_public else (ForbiddenError,)
        if method.upper() not in HARMLESS_METHODS:
            of_403 = (*of_403, CrossSiteError)
        implied |= problems(*of_403)
        if "requestBody" in operation or operation.get("parameters"):
            implied |= problems(ValidationError)
        if path.startswith(gated_prefix):
            implied |= problems(ValidationError, NotReadyError)
        for status, response in implied.items():
            _declare(responses, str(status), response)
        _put_nulls_back(responses)
        operation["responses"] = dict(sorted(responses.items()))
    add_schemas(document)
    make_portable(document)
    return document


def answer(
    example: object,
    status: int = 200,
    *,
    model: Kind | None = None,
    description: str | None = None,
    headers: dict[str, Any] | None = None,
    beside: Sequence[Content] = (),
) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses=`` that describe an operation's JSON answer.

    Args:
        example: A complete answer.
        status: The answer's status.
        model: The answer's model; None if the operation's signature declares it.
        description: The meaning of the status; None: its usual one.
        headers: The answer's headers, by name.
        beside: Other forms of the answer.
    """
    if model is None:
        contents = {JSON_MEDIA_TYPE: {"example": with_nulls(example)}}
    else:
        contents = described(in_json(model, example), *beside)
    response: dict[str, Any] = {"content": contents}
    if description is not None:
        response["description"] = description
    if headers is not None:
        response["headers"] = headers
    return {int(status): response}


def _declare(responses: dict[str, Any], status: str, implied: dict[str, Any]) -> None:
    """Merge the problems implied by a status into an operation's own declaration."""
    declared = responses.setdefault(status, implied)
    if declared is implied:
        return
    examples = declared["content"][PROBLEM_MEDIA_TYPE]["examples"]
    for code, example in implied["content"][PROBLEM_MEDIA_TYPE]["examples"].items():
        if code not in examples:
            examples[code] = example
            declared["description"] += f"; or: {example['summary']}"


def _put_nulls_back(responses: dict[str, Any]) -> None:
    for response in responses.values():
        for content in response.get("content", {}).values():
            for name in content.keys() & {"example", "examples"}:
                content[name] = nulls_put_back(content[name])


def _put_examples_beside_schemas(operation: dict[str, Any]) -> None:
    contents = operation.get("requestBody", {}).get("content", {}).values()
    # Explorers copy a parameter's example into their form. An optional parameter keeps its examples
    # inside the schema; otherwise a first click would send an idempotency key that nobody chose.
    required = (p for p in operation.get("parameters", ()) if p.get("required"))
    for owner in (*required, *contents):
        found = owner["schema"].pop("examples", ())
        if len(found) == 1:
            owner["example"] = found[0]
        elif found:
            owner["examples"] = {
                f"example {number}": {"value": value} for number, value in enumerate(found, start=1)
            }


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document.get("paths", {}).items():
        for method, operation in item.items():
            if method in _METHODS:
                yield path, method, operation
