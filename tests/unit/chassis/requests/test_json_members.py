"""A member given twice is refused at any depth, however it is spelled, and nothing else is."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import MalformedBodyError
from eruca.contract.messages import NewMessage
from eruca_chassis.requests.json_members import check_members_once, parse_json

TWICE = [
    '{"a": 1, "a": 1}',
    '{"a": {"b": 1, "c": 2, "b": 3}}',
    '[{"x": 1}, [{"a": null, "a": null}]]',
    '{"a": 1, "\\u0061": 2}',
    '{"ü": 1, "\\u00fc": 2}',
    '{"a": ":", "a": "\\u003a"}',
    '{"a": "\\u003a", "b": 1, "b": 2}',
    '{"a":1,"a" :2}',
    '{"": 1, "": 2}',
    '{"a": "{\\"a\\": 1}", "a": 1}',
    '{"a": "\\ud800", "a": 1}',
    '{"a": 123456789012345678901234567890, "a": 1}',
]


@pytest.mark.parametrize("text", TWICE)
def test_a_member_given_twice_is_refused(text: str) -> None:
    with pytest.raises(MalformedBodyError, match="twice"):
        check_members_once(text.encode(), json.loads(text))
    with pytest.raises(MalformedBodyError, match="twice"):
        parse_json(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        '{"body": {"text": "x"}, "tag": "a", "tag": "b"}',
        '{"body": {"text": "x"}, "tag": "b", "tag": null}',
        '{"body": {"text": "x"}, "body": {"text": "x"}}',
        '{"body": {"text": "x", "text": "y"}}',
        '{"body" : {"text": "x"}, "tag": "a", "tag": "b"}',
        '{"body": {"text": "a:b"}, "tag": "a", "tag": "b"}',
        '{"body": {"text": "x"}, "properties": {"k": "v", "k": "v"}}',
        '{"body": {"text": "x"}, "keys": [], "keys": []}',
    ],
)
def test_a_struct_hides_no_member_given_twice(text: str) -> None:
    understood = msgspec.json.decode(text, type=NewMessage)

    with pytest.raises(MalformedBodyError, match="twice"):
        check_members_once(text.encode(), understood)


@pytest.mark.parametrize(
    "text",
    [
        '{"body": {"text": "a:b \\" : \\u003a"}, "tag": null, "keys": [], "flag": 0}',
        '{"body": {"json": {"a": {"a": {"a": [{"a": 1}, {"a": 1}]}}}}, "properties": {"a": "b"}}',
        '{"body": {"text": "x"}, "deliver_at": "2030-01-01T00:00:00+08:00"}',
    ],
)
def test_what_is_given_once_is_taken(text: str) -> None:
    check_members_once(text.encode(), msgspec.json.decode(text, type=NewMessage))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(VALUES, st.booleans(), st.sampled_from([(",", ":"), (" , ", " : ")]))
def test_no_sound_json_is_refused(
    value: object, is_ascii: bool, separators: tuple[str, str]
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, separators=separators)

    check_members_once(text.encode("utf-8", "surrogatepass"), json.loads(text))
