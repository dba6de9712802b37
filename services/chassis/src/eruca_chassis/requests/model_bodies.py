"""JSON bodies of hot routes by the contract's pydantic models: parsed and refused as by FastAPI.

Most of the cost of a FastAPI operation comes before its model; the model itself costs a few
microseconds.
"""

from __future__ import annotations

import json
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter
from pydantic import ValidationError as ModelError

from eruca_chassis.documents.schemas import in_json
from eruca_chassis.requests.json_members import parse_json
from eruca_chassis.requests.validation import error_of_faults, unreadable_body

_MISSING: Final = {"type": "missing", "loc": ("body",), "msg": "Field required"}

_ModelT = TypeVar("_ModelT", bound=BaseModel)
_T = TypeVar("_T")


class ModelBody(Generic[_ModelT]):
    """The body of one operation; ``content`` is its part of the document.

    Args:
        kind: The model.
        example: A valid body, shown in the error for an invalid one.
    """

    def __init__(self, kind: type[_ModelT], example: object) -> None:
        self._adapter = TypeAdapter(kind)
        self._example = example
        self.content = in_json(kind, example)

    def read(self, body: bytes | bytearray) -> _ModelT:
        """Parse and validate *body*.

        Raises:
            MalformedBodyError: It is not JSON, or has a duplicate member.
            ValidationError: It is invalid for the operation; ``errors`` says where.
        """
        if not body:
            raise error_of_faults([_MISSING], None, self._example)
        try:
            return self._adapter.validate_python(parse_json(body))
        except json.JSONDecodeError as error:
            fault = {
                "type": "json_invalid",
                "loc": ("body", error.pos),
                "ctx": {"error": error.msg},
            }
            raise error_of_faults([fault], None, self._example) from error
        except ModelError as error:
            raise error_of_faults(_placed(error, "body"), None, self._example) from error
        except (ValueError, RecursionError) as error:  # not UTF-8, too deep, a huge number
            raise unreadable_body() from error


class PathValue(Generic[_T]):
    """A named segment of a path."""

    def __init__(self, kind: Any, name: str) -> None:  # noqa: ANN401 - an annotated type
        self._adapter: TypeAdapter[_T] = TypeAdapter(kind)
        self._name = name

    def read(self, value: str) -> _T:
        """Validate the segment and return its value; raise ValidationError if it is invalid."""
        try:
            return self._adapter.validate_python(value)
        except ModelError as error:
            raise error_of_faults(_placed(error, "path", self._name), None) from error


def _placed(error: ModelError, *place: str) -> list[dict[str, Any]]:
    """Return pydantic's faults, with their place in the request."""
    return [{**fault, "loc": (*place, *fault["loc"])} for fault in error.errors(include_url=False)]
