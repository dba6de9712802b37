"""Raw ASGI: bodies are bounded, answers are whole, ids are sane."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import NotReadyError, TooLargeError, ValidationError
from eruca_chassis.asgi import (
    ClientGoneError,
    Message,
    Receive,
    Scope,
    declared_size,
    problem_body,
    read_body,
    request_id,
    send_problem,
)

pytestmark = pytest.mark.anyio


def receiving(chunks: Iterable[bytes], *, ends: bool = True) -> Receive:
    pieces = list(chunks)
    messages: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": not ends or i + 1 < len(pieces)}
        for i, piece in enumerate(pieces)
    ]
    messages.append({"type": "http.disconnect"})

    async def receive() -> Message:
        return messages.pop(0)

    return receive


@pytest.mark.parametrize("chunks", [[b""], [b"whole"], [b"in ", b"", b"pieces"]])
async def test_a_body_is_read_whole(chunks: list[bytes]) -> None:
    body = await read_body(receiving(chunks), size_max=9, limit_name="body_size_max")

    assert bytes(body) == b"".join(chunks)


async def test_a_body_is_not_read_further_than_its_limit() -> None:
    receive = receiving([b"12345", b"6", b"never read"])

    with pytest.raises(TooLargeError, match="batch_size_max, 5 bytes"):
        await read_body(receive, size_max=5, limit_name="batch_size_max")

    assert (await receive())["body"] == b"never read"


async def test_a_client_that_leaves_in_mid_upload_is_not_taken_for_the_end() -> None:
    with pytest.raises(ClientGoneError):
        await read_body(receiving([b"half"], ends=False), size_max=9, limit_name="x")


@pytest.mark.parametrize("sent", [b"a", b"4f-1c:9/a+b=@_.", b"x" * 128])
def test_a_sane_request_id_is_kept(sent: bytes) -> None:
    assert request_id({"headers": [(b"x-request-id", sent)]}) == sent.decode()


@pytest.mark.parametrize("sent", [b"", b"x" * 129, b"a b", b"a\nb", b"\xff", b"a\n", b"<script>"])
def test_any_other_request_id_is_replaced_once(sent: bytes) -> None:
    scope: Scope = {"headers": [(b"x-request-id", sent)]}

    made = request_id(scope)

    assert len(made) == 16
    assert request_id(scope) == made


@pytest.mark.parametrize(("sent", "size"), [(b"12", 12), (b"-1", None), (b"1e9", None)])
def test_a_declared_size_is_a_plain_number(sent: bytes, size: int | None) -> None:
    assert declared_size({"headers": [(b"content-length", sent)]}) == size
    assert declared_size({"headers": []}) is None


async def test_a_problem_carries_its_retry_after_in_whole_seconds() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    error = NotReadyError("soon", retry_after_seconds=0.2)
    status = await send_problem(send, error, "id-1", [(b"connection", b"close")])

    start, body = sent
    assert status == start["status"] == 503
    headers = dict(start["headers"])
    assert headers[b"retry-after"] == b"1"
    assert headers[b"x-request-id"] == b"id-1"
    assert headers[b"connection"] == b"close"
    assert headers[b"content-length"] == b"%d" % len(body["body"])
    assert json.loads(body["body"]) == error.problem("id-1")


@given(detail=st.text(alphabet=st.characters(exclude_categories=[])))
def test_a_problem_is_valid_json_whatever_text_is_in_it(detail: str) -> None:
    document = json.loads(problem_body(ValidationError(detail), "id").decode("utf-8"))

    assert document["detail"] == detail
