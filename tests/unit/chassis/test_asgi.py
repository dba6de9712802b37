"""Raw ASGI: bodies are bounded, answers are whole, ids are sane."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import NotReadyError, ValidationError
from eruca_chassis.asgi import (
    Message,
    Scope,
    declared_size,
    log_names,
    problem_body,
    request_id,
    send_problem,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("sent", [b"a", b"4f-1c:9/a+b=@_.", b"x" * 128])
def test_a_sane_request_id_is_kept(sent: bytes) -> None:
    assert request_id({"headers": [(b"x-request-id", sent)]}) == sent.decode()


@pytest.mark.parametrize("sent", [b"", b"x" * 129, b"a b", b"a\nb", b"\xff", b"a\n", b"<script>"])
def test_any_other_request_id_is_replaced_once(sent: bytes) -> None:
    scope: Scope = {"headers": [(b"x-request-id", sent)]}

    made = request_id(scope)

    assert len(made) == 16
    assert request_id(scope) == made


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    "sent",
    [TRACEPARENT, f"cc-{TRACE}-00f067aa0ba902b7-01", f"cc-{TRACE}-00f067aa0ba902b7-01-what-may-be"],
)
def test_log_lines_name_the_trace_that_a_request_is_of(sent: str) -> None:
    headers = [(b"x-request-id", b"a"), (b"traceparent", sent.encode())]
    assert log_names({"headers": headers}) == {"request_id": "a", "trace_id": TRACE}


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [""],
        ["x"],
        [TRACEPARENT.upper()],
        [TRACEPARENT + "-what-may-not-be"],
        [TRACEPARENT + "\n"],
        [TRACEPARENT[:-1]],
        [" " + TRACEPARENT],
        [f"ff{TRACEPARENT[2:]}"],
        [f"00-{'0' * 32}-00f067aa0ba902b7-01"],
        [f"00-{TRACE}-{'0' * 16}-01"],
        [f"cc-{TRACE}-00f067aa0ba902b7-01x"],
        [TRACEPARENT, TRACEPARENT],
    ],
)
def test_a_traceparent_that_names_no_trace_is_ignored(sent: list[str]) -> None:
    headers = [(b"traceparent", value.encode()) for value in sent]
    assert log_names({"headers": [(b"x-request-id", b"a"), *headers]}) == {"request_id": "a"}


@pytest.mark.parametrize(
    ("sent", "size"),
    [(b"12", 12), (b"0", 0), (b"0" * 5_000 + b"12", 12), (b"-1", None), (b"1e9", None)],
)
def test_a_declared_size_is_a_plain_number(sent: bytes, size: int | None) -> None:
    assert declared_size({"headers": [(b"content-length", sent)]}) == size
    assert declared_size({"headers": []}) is None


def test_a_declared_size_of_many_digits_is_large() -> None:
    size = declared_size({"headers": [(b"content-length", b"1" * 5_000)]})  # too many for int()

    assert size is not None
    assert size > 10**18


async def test_a_problem_carries_its_retry_after_in_whole_seconds() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    error = NotReadyError("soon", retry_after_seconds=0.2)
    scope = {"headers": [(b"x-request-id", b"id-1")], "query_string": b""}
    status = await send_problem(send, error, scope, [(b"connection", b"close")])

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
