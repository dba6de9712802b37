"""Faults found by pydantic become one error that names each value and its place."""

from __future__ import annotations

from eruca.contract.errors import (
    MalformedBodyError,
    UnsupportedMediaTypeError,
    ValidationError,
)
from eruca_chassis.requests.validation import ERROR_COUNT_MAX, error_of_faults


def fault(
    *location: str | int, kind: str = "less_than_equal", value: object = 99
) -> dict[str, object]:
    return {"type": kind, "loc": location, "msg": "Should be small", "input": value}


def test_each_fault_is_a_pointer_and_the_refused_value() -> None:
    error = error_of_faults(
        [fault("query", "limit"), fault("body", "urls", "a/b~c", 0, value="x")], "application/json"
    )

    assert isinstance(error, ValidationError)
    assert error.errors == [
        {"pointer": "/query/limit", "detail": "Should be small; got 99"},
        {"pointer": "/body/urls/a~1b~0c/0", "detail": 'Should be small; got "x"'},
    ]
    assert error.detail == "/query/limit: Should be small; got 99 (and 1 more)"


def test_a_pointer_leads_to_a_value_of_the_body_whatever_kind_it_was_tried_as() -> None:
    body = {"start": "soon", "policy": {"kind": "listed", "delays": [1, -1]}}
    faults = [
        fault("body", "start", "time"),
        fault("body", "policy", "listed", "delays", 1),
        fault("body", "policy", "listed", "times", kind="missing"),
        fault("body", "policy", "listed", "kind"),
    ]

    error = error_of_faults(faults, "application/json", body=body)

    assert [one["pointer"] for one in error.errors] == [
        "/body/start",
        "/body/policy/delays/1",
        "/body/policy/times",
        "/body/policy/kind",
    ]


def test_a_missing_or_unknown_field_shows_no_value() -> None:
    error = error_of_faults([fault("body", "a", kind="missing", value={"b": 1})], None)

    assert error.errors[0]["detail"] == "Should be small"


def test_a_large_value_is_cut_and_a_long_list_too() -> None:
    error = error_of_faults([fault("body", i, value="x" * 10_000) for i in range(500)], None)

    assert len(error.errors) == ERROR_COUNT_MAX
    assert "(and 499 more)" in error.detail
    assert len(error.detail) < 200


def test_a_value_that_json_cannot_say_is_shown_all_the_same() -> None:
    error = error_of_faults([fault("body", 1, value=b"\xff"), fault("body", value="\ud800")], None)

    assert "got" in error.detail


def test_a_body_that_is_not_json_says_where() -> None:
    broken = fault("body", 7, kind="json_invalid") | {"ctx": {"error": "Expecting value"}}

    error = error_of_faults([broken], "application/json")

    assert isinstance(error, MalformedBodyError)
    assert "Expecting value (at character 7)" in error.detail


def test_a_body_of_another_type_is_refused_for_its_type() -> None:
    unread = fault("body", kind="model_attributes_type", value=b"a=b")

    error = error_of_faults([unread], "application/x-www-form-urlencoded")

    assert isinstance(error, UnsupportedMediaTypeError)
    assert isinstance(error_of_faults([unread], "application/problem+json"), ValidationError)
