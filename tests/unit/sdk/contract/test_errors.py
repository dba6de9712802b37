"""Errors: every class a service can raise is the same class at the client."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from eruca.contract import errors
from eruca.contract.errors import (
    AccessError,
    AlreadyDecidedError,
    ClientError,
    ErucaError,
    FilterSyntaxError,
    InternalError,
    NotFoundError,
    NotMasterError,
    OffsetOutOfRangeError,
    OverloadedError,
    PartialSendError,
    RefusedError,
    RequestError,
    SendFailedError,
    TopicNotFoundError,
    TransportError,
    UnavailableError,
    ValidationError,
    error_of_problem,
    every_error,
)

# Other modules may have refinements of their own, with the code of what they refine.
KINDS = [kind for kind in every_error() if kind.__module__.startswith(errors.__name__)]
SENT = [kind for kind in KINDS if not issubclass(kind, ClientError)]
# A value is refused by a detail that names what is allowed; the others only have kinds below them.
SAID_BY_DETAIL = {
    *(ErucaError, RequestError, RefusedError, AccessError, ValidationError, FilterSyntaxError),
}


@pytest.mark.parametrize("kind", SENT)
def test_every_error_survives_the_wire(kind: type[ErucaError]) -> None:
    error = kind("what happened", fix="do this", errors=[{"pointer": "/a", "detail": "wrong"}])
    document = json.loads(json.dumps(error.problem("request-1")))

    got = error_of_problem(document, document["status"], retry_after_seconds=1.5)

    assert type(got) is kind
    assert got.detail == "what happened"
    assert got.fix == "do this"
    assert got.errors == error.errors
    assert got.request_id == "request-1"
    assert got.retry_after_seconds == 1.5
    assert got.problem() == document


GIVEN_BY_NAME: dict[type[ErucaError], dict[str, Any]] = {
    OffsetOutOfRangeError: {"min_offset": 3, "max_offset": 9},
    PartialSendError: {"outcomes": ["stored"], "attempts": [("broker-a", TransportError("cut"))]},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("copied", [lambda e: pickle.loads(pickle.dumps(e)), copy.deepcopy])
def test_every_error_survives_the_way_to_another_process(
    kind: type[ErucaError], copied: Callable[[ErucaError], ErucaError]
) -> None:
    error = kind("what happened", **GIVEN_BY_NAME.get(kind, {}))
    error.fix = "do this"

    got = copied(error)

    assert type(got) is kind
    assert (str(got), got.args) == ("what happened (do this)", ("what happened",))
    assert repr(vars(got)) == repr(vars(error))


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_a_code_and_a_status_of_its_kind(kind: type[ErucaError]) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.code)
    assert 400 <= kind.status <= 599 or kind is NotMasterError  # whose answer is a redirect
    assert kind.title
    if issubclass(kind, RequestError):
        # HTTP has two of its own for what a client asks and no server of this kind does.
        assert kind.status < 500 or kind.status in (501, 505)
        assert not kind.retryable
    if issubclass(kind, UnavailableError):
        assert kind.retryable


@pytest.mark.parametrize("kind", [kind for kind in SENT if kind not in SAID_BY_DETAIL])
def test_what_is_sent_says_what_to_do_about_it(kind: type[ErucaError]) -> None:
    own = vars(kind).get("default_fix")  # one of another kind would mislead

    assert own
    assert kind("what happened").problem()["fix"] == own
    assert kind("what happened", fix="do this").problem()["fix"] == "do this"


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in KINDS]

    assert len(set(codes)) == len(codes)


def test_the_tree_in_the_docstring_names_every_error() -> None:
    drawn = set(re.findall(r"\b[A-Z]\w+Error\b", errors.__doc__ or ""))

    assert {kind.__name__ for kind in KINDS} == drawn


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RequestError),
        (404, NotFoundError),
        (418, RequestError),
        (429, OverloadedError),
        (500, InternalError),
        (501, InternalError),
        (502, UnavailableError),
        (503, UnavailableError),
        (504, UnavailableError),
    ],
)
@pytest.mark.parametrize("code", ["of-a-later-version", None, 7, ["x"]])
def test_an_unknown_code_becomes_the_nearest_kind(
    status: int, kind: type[ErucaError], code: object
) -> None:
    assert type(error_of_problem({"code": code}, status)) is kind


@pytest.mark.parametrize(
    ("document", "detail"),
    [
        ({"detail": "d", "title": "t"}, "d"),
        ({"title": "t"}, "t"),
        ({}, "HTTP status 503"),
        ({"detail": 5}, "5"),
    ],
)
def test_something_is_always_told(document: dict[str, Any], detail: str) -> None:
    assert error_of_problem(document, 503).detail == detail


@pytest.mark.parametrize("nonsense", ["text", 5, ["x", 1], {"a": "b"}, [[1]], True])
def test_a_document_of_nonsense_is_still_an_error(nonsense: object) -> None:
    document = dict.fromkeys(("code", "detail", "fix", "errors", "request_id"), nonsense)

    error = error_of_problem(document, 500)

    assert isinstance(error, ErucaError)
    assert error.errors == []
    assert json.dumps(error.problem())


@pytest.mark.parametrize(
    ("error", "members"),
    [
        (FilterSyntaxError("x", position=4, excerpt="AND"), {"position": 4, "excerpt": "AND"}),
        (AlreadyDecidedError("x", decision={"by": "check"}), {"decision": {"by": "check"}}),
        (
            NotMasterError("x", epoch=7, master_urls={"default": "http://a:1"}),
            {"epoch": 7, "master_urls": {"default": "http://a:1"}},
        ),
    ],
)
def test_what_a_kind_says_beyond_others_survives_the_wire(
    error: ErucaError, members: dict[str, Any]
) -> None:
    document = error.problem()

    assert members.items() <= document.items()
    assert vars(error_of_problem(document, error.status)) == vars(error)


@pytest.mark.parametrize("kind", [FilterSyntaxError, AlreadyDecidedError, NotMasterError])
@pytest.mark.parametrize("nonsense", [[["x"]], 1.5, None])
def test_what_it_says_is_left_out_where_it_is_nonsense(
    kind: type[ErucaError], nonsense: object
) -> None:
    names = ("position", "excerpt", "decision", "epoch", "master_urls")
    members = dict.fromkeys(names, nonsense)

    error = error_of_problem({"code": kind.code, "detail": "x"} | members, kind.status)

    assert vars(error) == vars(kind("x"))


@pytest.mark.parametrize("epoch", [True, 0, -1, "7"])
def test_a_number_that_is_no_epoch_is_left_out(epoch: object) -> None:
    document = {"code": "not-master", "epoch": epoch, "master_urls": {"default": 5, "lan": ""}}

    error = error_of_problem(document, 307)

    assert isinstance(error, NotMasterError)
    assert (error.epoch, error.master_urls, error.redirect_url) == (None, {}, None)


@pytest.mark.parametrize(
    ("urls", "redirect_url"),
    [
        ({"default": "http://a:1", "lan": "http://b:1"}, "http://a:1"),
        ({"lan": "http://b:1"}, "http://b:1"),
        ({}, None),
    ],
)
def test_a_redirect_leads_to_the_master_in_the_default_network(
    urls: dict[str, str], redirect_url: str | None
) -> None:
    assert NotMasterError("x", epoch=1, master_urls=urls).redirect_url == redirect_url
    assert UnavailableError("x").redirect_url is None


def test_what_to_do_is_part_of_the_text() -> None:
    assert str(RequestError("it is wrong")) == "it is wrong"
    assert str(RequestError("it is wrong", fix="fix it")) == "it is wrong (fix it)"
    assert "eruca topic create" in str(TopicNotFoundError("no topic"))


def test_nobody_is_told_to_create_a_topic_of_the_system() -> None:
    assert "eruca topic create orders" in TopicNotFoundError.fix_of("orders")
    assert "create" not in TopicNotFoundError.fix_of("TBW102")


def test_a_problem_without_field_errors_does_not_mention_them() -> None:
    assert "errors" not in RequestError("x").problem()
    assert RequestError("x").problem()["type"] == "/problems/bad-request"


def test_a_failed_send_tells_every_attempt() -> None:
    first = UnavailableError("busy")

    error = SendFailedError("all failed", attempts=[("broker-a", first)])

    assert error.attempts == [("broker-a", first)]
    assert error.retryable


def test_a_partial_send_tells_which_messages_are_missing() -> None:
    error = PartialSendError("some failed", outcomes=["sent", UnavailableError("busy"), "sent"])

    assert error.failed_indexes == [1]
    assert error.attempts == []


def test_an_offset_out_of_range_tells_the_range() -> None:
    error = OffsetOutOfRangeError("gone", min_offset=5, max_offset=9)

    assert (error.min_offset, error.max_offset) == (5, 9)
