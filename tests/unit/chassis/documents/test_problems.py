"""Declared problems: one response for each status, with an example of each kind."""

from __future__ import annotations

from eruca.contract.errors import (
    PROBLEM_MEDIA_TYPE,
    ClientError,
    GroupNotFoundError,
    NotMasterError,
    OverloadedError,
    TopicNotFoundError,
    ValidationError,
    every_error,
)
from eruca_chassis.documents.problems import PROBLEM_SCHEMA, problems


def test_kinds_of_one_status_share_a_response() -> None:
    responses = problems(TopicNotFoundError, OverloadedError, GroupNotFoundError)

    assert list(responses) == [404, 429]
    examples = responses[404]["content"][PROBLEM_MEDIA_TYPE]["examples"]
    assert list(examples) == ["topic-not-found", "group-not-found"]
    assert "Retry-After" in responses[429]["headers"]
    assert "headers" not in responses[404]


def test_a_redirect_declares_its_location() -> None:
    assert list(problems(NotMasterError)[307]["headers"]) == ["Location"]


def test_every_example_is_what_the_schema_says() -> None:
    for kind in every_error():
        if issubclass(kind, ClientError):
            continue
        content = problems(kind)[kind.status]["content"][PROBLEM_MEDIA_TYPE]
        value = content["examples"][kind.code]["value"]
        assert set(PROBLEM_SCHEMA["required"]) <= value.keys() <= set(PROBLEM_SCHEMA["properties"])


def test_a_validation_example_points_at_a_value() -> None:
    content = problems(ValidationError)[422]["content"][PROBLEM_MEDIA_TYPE]

    assert content["examples"]["validation-failed"]["value"]["errors"][0]["pointer"]
