"""Request bodies of hot routes: admitted by size, read, decoded.

A body is paid for before it is read: what Content-Length announces is taken from
``bytes_in_flight_max``, and a chunked body is paid for piece by piece. The bytes stay taken until
the request is answered, which includes waiting for the disk.
"""

from __future__ import annotations

import re
from types import TracebackType
from typing import Final, Self, TypeAlias, TypeVar

import msgspec

from eruca.contract.errors import MalformedBodyError, ValidationError
from eruca_broker.core.budget import Budget
from eruca_chassis.asgi import ClientGoneError, Receive, Scope, body_too_large

_T = TypeVar("_T")
_PLACE: Final = re.compile(r" - at `\$(.*)`$")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_UNKNOWN_FIELD: Final = re.compile(r"unknown field `([^`]*)`")
_MISSING_FIELD: Final = re.compile(r"missing required field `([^`]*)`")


Headers: TypeAlias = dict[bytes, bytes]


def headers_of(scope: Scope) -> Headers:
    """Return a request's headers by name in lower case; several of one name joined by commas."""
    pairs = scope["headers"]
    headers: Headers = dict(pairs)
    if len(headers) != len(pairs):
        headers = {}
        for name, value in pairs:
            headers[name] = headers[name] + b"," + value if name in headers else value
    return headers


class InFlight:
    """One request's share of the bytes in flight, given back when its block is left."""

    __slots__ = ("_budget", "_taken")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._taken = 0

    def take(self, size: int) -> None:
        """Take *size* bytes more.

        Raises:
            OverloadedError: They do not fit.
        """
        self._budget.take(size)
        self._taken += size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._budget.give(self._taken)

    async def read_body(
        self, headers: Headers, receive: Receive, *, size_max: int, limit_name: str
    ) -> list[bytes]:
        """Return the body in the pieces it came in, taken into account.

        Raises:
            TooLargeError: It has more than *size_max* bytes.
            OverloadedError: It does not fit among the bytes in flight.
            ClientGoneError: The client left in mid-upload.
        """
        paid = 0
        content_length = headers.get(b"content-length")
        if content_length is not None:
            paid = int(content_length)  # digits: uvicorn's parser has seen to it
            if paid > size_max:
                raise body_too_large(size_max, limit_name)
            self.take(paid)
        chunks: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientGoneError
            chunk = message.get("body", b"")
            more = message.get("more_body", False)
            if not chunk:
                continue
            size += len(chunk)
            if size > size_max:
                raise body_too_large(size_max, limit_name)
            if size > paid:
                self.take(size - paid)
                paid = size
            chunks.append(chunk)
        return chunks


def decode_json(decoder: msgspec.json.Decoder[_T], body: bytes | bytearray) -> _T:
    """Return what the JSON text *body* says.

    Raises:
        MalformedBodyError: It is not JSON.
        ValidationError: It is not of the shape the operation takes; ``errors`` says where.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _fault(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedBodyError(
            f"the body is not JSON: {error}", fix="send one JSON value, in UTF-8"
        ) from error


def _fault(message: str) -> ValidationError:
    place = _PLACE.search(message)
    pointer = "/body"
    if place:
        message = message[: place.start()]
        steps = _STEP.findall(place[1].replace("[...]", ""))  # a property's name is not told
        pointer += "".join(f"/{name or index}" for name, index in steps)
    field = _UNKNOWN_FIELD.search(message) or _MISSING_FIELD.search(message)
    if field:
        pointer += f"/{field[1].replace('~', '~0').replace('/', '~1')}"
    return ValidationError(
        f"{pointer}: {message}",
        errors=[{"pointer": pointer, "detail": message}],
        fix="correct the value that `errors` points at; /openapi.json has its limits",
    )
