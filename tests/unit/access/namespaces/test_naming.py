"""The names of one request and of its answer, as its caller says them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eruca.contract.limits import JSON_BODY_SIZE_MAX
from eruca.contract.wire import JSON_MEDIA_TYPE
from eruca.core.access.namespaces import Namespace
from eruca_access.namespaces.naming import RequestNaming


def naming_of(**said: str) -> RequestNaming:
    naming = RequestNaming(Namespace("team-a-"))
    for name, value in said.items():
        naming.parameter(name, value)
    return naming


def problem_of(detail: str, **more: str) -> dict[str, Any]:
    return {"code": "topic-not-found", "status": 404, "detail": detail, **more}


@pytest.mark.parametrize(
    ("said", "whole", "short"),
    [
        ({"topic": "orders"}, "no topic team-a-orders", "no topic orders"),
        (
            {"topic": "%DLQ%billing"},
            "see eruca dlq list team-a-billing",
            "see eruca dlq list billing",
        ),
        ({"group": "billing"}, "'%RETRY%team-a-billing' is away", "'%RETRY%billing' is away"),
    ],
)
def test_a_problem_has_the_names_of_its_request(
    said: dict[str, str], whole: str, short: str
) -> None:
    naming = naming_of(**said)
    document = json.dumps(problem_of("it is away", fix=whole)).encode()

    assert json.loads(naming.problem(document))["fix"] == short
    answer = json.dumps({"results": [{"receipt": None, "problem": problem_of(whole)}]}).encode()
    [result] = json.loads(naming.answer(JSON_MEDIA_TYPE, answer))["results"]
    assert result == {"receipt": None, "problem": problem_of(short)}


def test_a_body_that_is_too_large_for_every_operation_is_not_parsed() -> None:
    body = b'{"topic":"orders","x":"%b"}' % (b"x" * JSON_BODY_SIZE_MAX)

    assert naming_of().body(JSON_MEDIA_TYPE, body) is body
    assert b"team-a-orders" in naming_of().body(JSON_MEDIA_TYPE, body.replace(b"xx", b""))


def test_a_detail_has_the_short_form_of_a_name_beside_it() -> None:
    outcome = {"topic": "team-a-orders", "detail": "topic 'team-a-orders' no longer exists", "n": 1}
    answer = json.dumps({"outcomes": [outcome, {"detail": "team-a-orders"}]}).encode()

    made = json.loads(naming_of().answer(JSON_MEDIA_TYPE, answer))

    said = {"topic": "orders", "detail": "topic 'orders' no longer exists", "n": 1}
    assert made == {"outcomes": [said, {"detail": "team-a-orders"}]}


def test_only_a_name_that_is_too_long_gets_the_advice_for_one() -> None:
    naming = naming_of(topic="x" * 127)
    other = {"code": "validation-failed", "detail": "/body/size: Expected `int`", "fix": "send 1"}
    long = {"code": "validation-failed", "detail": "/path/topic: is too long", "fix": "shorten it"}

    assert json.loads(naming.problem(json.dumps(other).encode())) == other
    assert "120 characters" in json.loads(naming.problem(json.dumps(long).encode()))["fix"]
