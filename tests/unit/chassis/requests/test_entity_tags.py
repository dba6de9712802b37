"""Entity tags: answers that a client has already."""

from __future__ import annotations

import pytest

from eruca_chassis.requests.entity_tags import is_known, known_tags, tagged_answer


@pytest.mark.parametrize(
    ("header", "known"),
    [
        (None, False),
        ('"7-a"', True),
        ('W/"7-a"', True),
        ('"6-b", W/"7-a"', True),
        ('"6-b"', False),
        ("*", True),
    ],
)
def test_a_client_knows_an_answer_by_its_tag(header: str | None, *, known: bool) -> None:
    assert is_known('"7-a"', known_tags(header)) is known


def test_an_answer_has_its_tag_and_none_is_sent_twice() -> None:
    whole = tagged_answer('{"a": 1}', '"7-a"', status=201, headers={"x-more": "1"})
    again = tagged_answer(None, '"7-a"')

    assert (whole.status_code, whole.body) == (201, b'{"a": 1}')
    assert whole.headers["content-type"] == "application/json"
    assert whole.headers["x-more"] == "1"
    assert (again.status_code, again.body) == (304, b"")
    for answer in (whole, again):
        assert answer.headers["etag"] == '"7-a"'
        assert answer.headers["cache-control"] == "no-cache"
