"""The transport seam: problem documents turned into errors, names turned into targets."""

from __future__ import annotations

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse, path_segment, problem_error, target_of
from eruca.contract.errors import ErucaError, InternalError
from support.scripted_transport import problem_answer


@pytest.mark.parametrize(
    "error",
    [
        eruca.TopicNotFoundError("no topic"),
        eruca.OverloadedError("busy", retry_after_seconds=2.5),
        eruca.ValidationError("no", errors=[{"pointer": "/a", "detail": "b"}], fix="so"),
    ],
)
def test_a_problem_becomes_the_error_it_tells_of(error: ErucaError) -> None:
    raised = problem_error(problem_answer(error), "GET /")

    assert type(raised) is type(error)
    assert (raised.detail, raised.fix, raised.errors) == (error.detail, error.fix, error.errors)
    assert raised.retry_after_seconds == error.retry_after_seconds
    assert raised.request_id == "request-1"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, eruca.TransportError),
        (404, eruca.TransportError),
        (429, eruca.OverloadedError),
        (500, InternalError),
        (502, eruca.UnavailableError),
        (413, eruca.TooLargeError),
        (418, eruca.TransportError),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<h1>Proxy</h1>", b"\xff" * 5_000])
def test_an_answer_of_something_else_is_quoted(
    status: int, kind: type[ErucaError], body: bytes
) -> None:
    headers = {"content-type": "text/html", "x-request-id": "request-2"}

    raised = problem_error(HttpResponse(status, headers, body), "GET /v1/x")

    assert type(raised) is kind
    assert raised.request_id == "request-2"
    assert f"GET /v1/x: HTTP status {status}" in raised.detail
    assert len(raised.detail) < 400


@pytest.mark.parametrize("body", [b"not json", b"[]", b'"text"', b"\xff"])
def test_a_garbled_problem_is_no_reason_to_fail_otherwise(body: bytes) -> None:
    answer = HttpResponse(503, {"content-type": "application/problem+json"}, body)

    assert isinstance(problem_error(answer, "GET /"), eruca.UnavailableError)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3", 3.0),
        ("3600", 30.0),
        ("", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("-1", None),
        ("inf", None),
    ],
)
def test_only_a_number_of_seconds_says_when_to_try_again_and_none_an_hour_hence(
    text: str, seconds: float | None
) -> None:
    answer = HttpResponse(503, {"retry-after": text}, b"")

    assert problem_error(answer, "GET /").retry_after_seconds == seconds


def test_names_and_queries_are_quoted() -> None:
    assert path_segment("%RETRY%a/b c") == "%25RETRY%25a%2Fb%20c"
    assert target_of("/v1/x") == "/v1/x"
    assert target_of("/v1/x", a=None, from_="2026-01-01T00:00:00Z", b=True, c=1.5) == (
        "/v1/x?from=2026-01-01T00%3A00%3A00Z&b=true&c=1.5"
    )


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_make_another_path_is_no_allowed_value(name: str) -> None:
    with pytest.raises(eruca.ValidationError, match="expected a name or an id"):
        path_segment(name)


def test_a_name_without_a_form_in_utf_8_is_no_allowed_value() -> None:
    with pytest.raises(eruca.ValidationError, match="surrogate"):
        path_segment("a\udcff")
    with pytest.raises(eruca.ValidationError, match="surrogate"):
        target_of("/v1/x", key="a\udcff")
