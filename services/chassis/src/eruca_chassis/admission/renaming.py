"""Requests of callers that have other names for what the service knows: renamed at the door.

Such a caller (:class:`.gate.Naming`) says short names, in the path, the query and the body. This
module replaces them before anything else of the service sees the request, and replaces the names
in every answer to it. So an endpoint knows whole names only.

A body and an answer are changed as a whole, so both wait in memory. Only callers with such names
come here: connections leave their requests to the application, which is the slower way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote_from_bytes, unquote_plus, unquote_to_bytes

from eruca.contract.errors import PROBLEM_MEDIA_TYPE, ErucaError
from eruca_chassis.admission.budget import Limited, client_of, give_shared, take_shared
from eruca_chassis.admission.gate import ACCESS_KEY, OPEN, Naming
from eruca_chassis.asgi import (
    BODILESS,
    ClientGoneError,
    Handler,
    Header,
    Message,
    Receive,
    Scope,
    Send,
    body_too_large,
    header,
    problem_body,
    problem_headers,
    request_id,
    request_id_header,
    target_said,
)

RENAMED_BODY_SIZE_MAX: Final = 16 * 1024 * 1024  # bytes; no operation takes more
_ANY_PATH: Final = ":path"  # after the name of a segment that may have slashes
_LEFT_OUT: Final = frozenset({b"content-length"})


class Renaming:
    """One request, and its answer.

    Args:
        naming: The names of its caller.
        operation: The requested one's id.
        template: Its path, as ``/v1/things/{thing}``.
        scope: The request as sent; the renamed one is the attribute ``scope``.
        budget: Of the bodies that wait.
    """

    def __init__(
        self, naming: Naming, operation: str, template: str, scope: Scope, budget: Limited
    ) -> None:
        self._naming = naming
        self._refusal = naming.refusal(operation)
        self._budget = budget
        self._said_target = target_said(scope)
        raw_path = _renamed_path(scope.get("raw_path") or b"", template, naming)
        self.scope = {
            **scope,
            "raw_path": raw_path,
            "path": unquote_to_bytes(raw_path).decode(),
            "query_string": _renamed_query(scope["query_string"], naming),
        }

    async def handle(self, handle: Handler, scope: Scope, receive: Receive, send: Send) -> int:
        """Read the body, and let *handle* answer the request with other names in it.

        Raises:
            ErucaError: The operation cannot be renamed, or the body is too large.
        """
        if self._refusal is not None:
            raise self._refusal
        client, quota = client_of(scope["client"]), scope.get(ACCESS_KEY, OPEN).quota
        taken = 0
        pieces: list[bytes] = []
        try:
            more = True
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientGoneError
                piece = message.get("body", b"")
                if taken + len(piece) > RENAMED_BODY_SIZE_MAX:
                    raise body_too_large(RENAMED_BODY_SIZE_MAX, "renamed_body_size_max")
                if piece:
                    take_shared(self._budget, len(piece), client, quota)
                    taken += len(piece)
                    pieces.append(piece)
                more = message.get("more_body", False)
            body = self._naming.body(_media_type(scope["headers"]), b"".join(pieces))
            pieces.clear()
            return await handle(_sized(scope, len(body)), _replayed(body, receive), send)
        finally:
            if taken:
                give_shared(self._budget, taken, client, quota)

    def sending(self, send: Send) -> Send:
        """Wrap *send*: it keeps an answer until it is whole, and sends it with other names."""
        start: Message = {}
        pieces: list[bytes] = []

        async def send_renamed(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            pieces.append(bytes(message.get("body", b"")))
            if not message.get("more_body", False):
                head, body = self._renamed(start, b"".join(pieces))
                await send(head)
                await send({"type": "http.response.body", "body": body})

        return send_renamed

    def _renamed(self, start: Message, body: bytes) -> tuple[Message, bytes]:
        headers: list[Header] = [self._renamed_header(*pair) for pair in start.get("headers", ())]
        if start["status"] in BODILESS:
            return {**start, "headers": headers}, body
        media_type = _media_type(headers)
        status = start["status"]
        try:
            if media_type == PROBLEM_MEDIA_TYPE:
                body = self._naming.problem(body)
            else:
                body = self._naming.answer(media_type, body)
        except ErucaError as error:
            identity = request_id(self.scope)
            status, body = error.status, problem_body(error, identity)
            headers = [*problem_headers(error), request_id_header(identity)]
        headers = [pair for pair in headers if pair[0] not in _LEFT_OUT]
        headers.append((b"content-length", b"%d" % len(body)))
        return {**start, "status": status, "headers": headers}, body

    def _renamed_header(self, name: bytes, value: bytes) -> Header:
        if name == b"location":  # another server, which renames the target again
            return name, value.removesuffix(target_said(self.scope)) + self._said_target
        return name, value


def _media_type(headers: Sequence[Header]) -> str:
    value = header({"headers": headers}, b"content-type") or b""
    return value.decode("latin-1").partition(";")[0].strip().lower()


def _sized(scope: Scope, size: int) -> Scope:
    """Set the announced size of the request's body, if it has one; return the scope, changed."""
    scope["headers"] = [
        (name, b"%d" % size if name == b"content-length" else value)
        for name, value in scope["headers"]
    ]
    return scope


def _replayed(body: bytes, receive: Receive) -> Receive:
    is_given = False

    async def receive_again() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _renamed_path(raw_path: bytes, template: str, naming: Naming) -> bytes:
    segments, names = raw_path.split(b"/"), template.split("/")
    if len(segments) != len(names):
        return raw_path  # a name with an escaped slash, which is refused
    for index, name in enumerate(names):
        if name.startswith("{") and name.endswith("}"):
            said = unquote_to_bytes(segments[index]).decode()
            other = naming.parameter(name[1:-1].removesuffix(_ANY_PATH), said)
            if other is not None:
                segments[index] = quote_from_bytes(other.encode(), safe="").encode()
    return b"/".join(segments)


def _renamed_query(query: bytes, naming: Naming) -> bytes:
    parts = query.split(b"&")
    for index, part in enumerate(parts):
        name, _, value = part.partition(b"=")
        said = unquote_plus(value.decode("latin-1"))
        other = naming.parameter(unquote_plus(name.decode("latin-1")), said)
        if other is not None:
            parts[index] = name + b"=" + quote_from_bytes(other.encode(), safe="").encode()
    return b"&".join(parts)
