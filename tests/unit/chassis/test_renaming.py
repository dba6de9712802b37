"""Requests renamed at the door: what is sent on, what comes back, and where a redirect leads."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from eruca.contract.errors import ConflictError, ErucaError, NotMasterError, TooLargeError
from eruca_chassis.admission.budget import Budget
from eruca_chassis.admission.renaming import RENAMED_BODY_SIZE_MAX, Renaming
from eruca_chassis.asgi import Handler, Message, Scope, send_answer, send_problem

pytestmark = pytest.mark.anyio

TEMPLATE: Final = "/v1/shelves/{shelf}/books/{book}"


class Naming:
    """Shelves and quoted words have an ``x-`` before them inside."""

    def refusal(self, operation: str) -> ErucaError | None:
        return ConflictError("no") if operation == "burn" else None

    def parameter(self, name: str, value: str) -> str | None:
        return f"x-{value}" if name == "shelf" else None

    def body(self, media_type: str, body: bytes) -> bytes:
        return body.replace(b'"', b'"x-', 1) if media_type == "application/json" else body

    def answer(self, media_type: str, body: bytes) -> bytes:
        if b"y-" in body:
            raise ConflictError("outside")
        return body.replace(b"x-", b"")

    def problem(self, body: bytes) -> bytes:
        return body.replace(b"x-", b"")


def scope_of(raw_path: bytes, query: bytes = b"", size: int | None = None) -> Scope:
    headers = [(b"content-type", b"application/json; charset=utf-8")]
    headers += [] if size is None else [(b"content-length", b"%d" % size)]
    return {
        "type": "http",
        "method": "PUT",
        "path": raw_path.decode(),
        "raw_path": raw_path,
        "query_string": query,
        "headers": headers,
        "client": ("127.0.0.1", 1),
    }


class Call:
    """One renamed request, answered by *handler*."""

    def __init__(self, scope: Scope, *pieces: bytes, operation: str = "put") -> None:
        self.budget = Budget("bodies", 64 * 1024 * 1024)
        self.renaming = Renaming(Naming(), operation, TEMPLATE, scope, self.budget)
        self._pieces = list(pieces)
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        if not self._pieces:
            return {"type": "http.disconnect"}
        piece = self._pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def run(self, handler: Handler) -> None:
        send = self.renaming.sending(self.send)
        scope = self.renaming.scope
        try:
            await self.renaming.handle(handler, scope, self.receive, send)
        except ErucaError as error:
            await send_problem(send, error, scope)

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])


async def test_path_query_and_body_are_renamed_and_the_answer_is_renamed_back() -> None:
    call = Call(scope_of(b"/v1/shelves/a%20b/books/7", b"shelf=c+d&limit=2&", 11), b'{"a":', b"1}")
    seen: dict[str, Any] = {}

    async def handler(scope: Scope, receive: Any, send: Any) -> int:  # noqa: ANN401
        seen.update(scope)
        seen["body"] = (await receive())["body"]
        seen["then"] = (await receive())["type"]
        kind = (b"content-type", b"application/json")
        return await send_answer(send, 200, b'"x-a"', [kind, (b"etag", b'"x-1"')])

    await call.run(handler)
    assert seen["raw_path"] == b"/v1/shelves/x-a%20b/books/7"
    assert seen["path"] == "/v1/shelves/x-a b/books/7"
    assert seen["query_string"] == b"shelf=x-c%20d&limit=2&"
    assert (seen["body"], seen["then"]) == (b'{"x-a":1}', "http.disconnect")
    assert dict(seen["headers"])[b"content-length"] == b"9"
    assert (call.body, call.headers[b"content-length"]) == (b'"a"', b"3")
    assert call.headers[b"etag"] == b'"x-1"'
    call.budget.take(call.budget.maximum, "")  # all was given back


async def test_a_redirect_leads_to_the_names_that_the_client_said() -> None:
    call = Call(scope_of(b"/v1/shelves/a/books/7", b"shelf=c"), b"")

    async def handler(*_: Any) -> int:  # noqa: ANN401
        raise NotMasterError("shelf x-a is elsewhere", master_urls={"default": "http://other:1/"})

    await call.run(handler)
    assert call.headers[b"location"] == b"http://other:1/v1/shelves/a/books/7?shelf=c"
    assert json.loads(call.body)["detail"] == "shelf a is elsewhere"


async def test_an_answer_that_cannot_be_renamed_becomes_a_problem() -> None:
    call = Call(scope_of(b"/v1/shelves/a/books/7"), b"")

    async def handler(_scope: Any, _receive: Any, send: Any) -> int:  # noqa: ANN401
        return await send_answer(send, 200, b'"y-secret"', [(b"content-type", b"application/json")])

    await call.run(handler)
    assert call.sent[0]["status"] == ConflictError.status
    assert b"secret" not in call.body
    assert call.headers[b"content-length"] == b"%d" % len(call.body)


async def never(*_: Any) -> int:  # noqa: ANN401
    raise AssertionError("it is refused before")


async def test_a_refused_operation_and_a_body_that_is_too_large_are_problems() -> None:
    refused = Call(scope_of(b"/v1/shelves/a/books/7"), b"", operation="burn")
    await refused.run(never)
    assert refused.sent[0]["status"] == ConflictError.status
    large = Call(scope_of(b"/v1/shelves/a/books/7"), bytes(RENAMED_BODY_SIZE_MAX), b"1")
    await large.run(never)
    assert large.sent[0]["status"] == TooLargeError.status
    large.budget.take(large.budget.maximum, "")


def test_a_path_of_another_shape_stays() -> None:
    call = Call(scope_of(b"/v1/shelves/a/b/books/7"))
    assert call.renaming.scope["raw_path"] == b"/v1/shelves/a/b/books/7"
