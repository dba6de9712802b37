"""Bytes in flight of FastAPI's answers, and hot routes' bodies that are structs in JSON.

Exchanges take their bytes themselves: a body is charged as it arrives. The bytes stay taken until
the request is answered, which includes waiting for the disk.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import msgspec

from eruca.contract.errors import MalformedBodyError, ValidationError
from eruca.contract.messages import NewMessage, NewMessages
from eruca.contract.transactions import NewTransaction, NewTransactions
from eruca_chassis.admission.budget import Budget
from eruca_chassis.documents.schemas import Json, in_json, in_json_as
from eruca_chassis.requests.json_members import check_members_once
from eruca_chassis.requests.parameters import nearest_name

_T = TypeVar("_T", bound=msgspec.Struct)
_RAW_MEMBER: Final = b'"json"'  # of a message's body, which is not parsed
_PLACE: Final = re.compile(r" - at `\$(.*)`$")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_UNKNOWN_FIELD: Final = re.compile(r"unknown field `([^`]*)`")
_MISSING_FIELD: Final = re.compile(r"missing required field `([^`]*)`")


class InFlight:
    """One request's share of the bytes in flight, released at the end of its block."""

    __slots__ = ("_budget", "_client", "_taken")

    def __init__(self, budget: Budget, client: str) -> None:
        self._budget = budget
        self._client = client
        self._taken = 0

    def take(self, size: int) -> None:
        """Take *size* bytes more.

        Raises:
            OverloadedError: They do not fit.
        """
        self._budget.take(size, self._client)
        self._taken += size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._taken:
            self._budget.give(self._taken, self._client)


class StructBody(Generic[_T]):
    """A hot route's body that is a struct in JSON; ``content`` is its part of the document.

    Args:
        kind: The struct.
        example: A minimal valid body; the error for any other body shows it.
        examples: Those of the document, by name; None: only that one.
    """

    def __init__(
        self, kind: type[_T], example: object, *, examples: Mapping[str, Json] | None = None
    ) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._example = json.dumps(example)
        self.content = in_json(kind, example) if examples is None else in_json_as(kind, examples)

    def read(self, body: bytes | bytearray) -> _T:
        """Return the content of the JSON text *body*.

        Raises:
            MalformedBodyError: It is not JSON, or contains a member twice.
            ValidationError: It does not have the shape that the operation accepts; ``errors`` says
                where.
        """
        try:
            understood = self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise _fault(str(error), self._decoder.type, self._example) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedBodyError(
                f"the body is not JSON: {error}",
                fix=f"send one JSON value, in UTF-8, such as {self._example}",
            ) from error
        check_members_once(body, understood)
        if _RAW_MEMBER in body:
            for raw in _raw_values(understood):
                _check_raw(raw)
        return understood


def _raw_values(understood: object) -> Iterator[msgspec.Raw]:
    """Yield the JSON values that are not parsed: messages' bodies."""
    messages: Sequence[object]
    if isinstance(understood, NewTransactions):
        messages = [begun.message for begun in understood.transactions]
    elif isinstance(understood, NewTransaction):
        messages = [understood.message]
    else:
        messages = understood.messages if isinstance(understood, NewMessages) else [understood]
    for message in messages:
        if isinstance(message, NewMessage) and isinstance(message.body.json, msgspec.Raw):
            yield message.body.json


def _check_raw(raw: msgspec.Raw) -> None:
    try:
        understood = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # refused when the message is made of it, with its place
    check_members_once(bytes(raw), understood)


def place_of(message: str) -> tuple[str, str]:
    """Return msgspec's message without the place, and the place as a JSON pointer."""
    place = _PLACE.search(message)
    if place is None:
        return message, ""
    steps = _STEP.findall(place[1].replace("[...]", ""))  # a property's name is not in the message
    return message[: place.start()], "".join(f"/{name or index}" for name, index in steps)


def _fault(message: str, kind: Any, example: str) -> ValidationError:  # noqa: ANN401
    message, place = place_of(message)
    pointer = f"/body{place}"
    unknown = _UNKNOWN_FIELD.search(message)
    field = unknown or _MISSING_FIELD.search(message)
    if unknown:
        near = nearest_name(unknown[1], () if place else kind.__struct_fields__)
        message = f"unknown field{f'; did you mean {near!r}?' if near else ''}"
    if field:
        pointer += f"/{field[1].replace('~', '~0').replace('/', '~1')}"
    return ValidationError.at(
        pointer, message, fix=f"send, for example, {example}; see /openapi.json for all fields"
    )
