"""Names in JSON: changed where the contract has them, and nowhere else."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.core.access.namespaces import Namespace
from eruca_access.namespaces.json_names import Changes, OutsideError, changed, parsed

SPACE: Final = Namespace("team-a-")
WHOLE: Final = Changes.to_whole(SPACE)
SHORT: Final = Changes.to_short(SPACE)
TEXTS: Final = st.text(max_size=8)
NAMES: Final = st.text("ab%_", min_size=1, max_size=8)
LEAVES: Final = st.none() | st.booleans() | st.integers() | TEXTS
MESSAGES: Final = st.fixed_dictionaries(
    {"topic": NAMES, "body": st.dictionaries(TEXTS, LEAVES), "queue_id": st.integers()},
    optional={"properties": st.dictionaries(st.sampled_from(["RETRY_TOPIC", "own"]), NAMES)},
)
ENTRIES: Final = {"group": NAMES, "topics": st.lists(NAMES)}


def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    others = {
        "topics_since": st.dictionaries(NAMES, inner),
        "queues": st.lists(inner),
        "producer_group": NAMES,
        "origin_topic": NAMES,
    }
    return st.lists(inner, max_size=3) | st.fixed_dictionaries(dict(ENTRIES), optional=others)


BODIES: Final = st.recursive(MESSAGES | LEAVES, around, max_leaves=10)


@given(BODIES)
def test_a_parsed_body_is_the_same_body(body: Any) -> None:  # noqa: ANN401
    written = msgspec.json.encode(parsed(json.dumps(body, indent=1).encode()))

    assert json.loads(written) == body


def test_what_a_user_has_written_keeps_its_numbers_spaces_and_escapes() -> None:
    own = b'{"json": {"a": 19.90, "b":1e2, "c":-0, "d":0.12345678901234567890123, "e":"\\u00e9"}}'
    text = b' {"topic" : "orders", "delay_seconds":1e0, "body" :%b}' % own

    made = msgspec.json.encode(changed(parsed(text), WHOLE))

    assert made == b'{"topic":"team-a-orders","delay_seconds":1e0,"body":%b}' % own


def test_what_is_nested_deeper_than_any_name_stays() -> None:
    text = b'{"a":' * 90_000 + b"1" + b"}" * 90_000

    with pytest.raises(RecursionError):
        parsed(text)
    deep = b'{"topic":' * 100 + b'"x"' + b"}" * 100
    assert msgspec.json.encode(parsed(deep)) == deep


@given(BODIES)
def test_short_names_of_whole_names_are_the_same_body(body: Any) -> None:  # noqa: ANN401
    assert changed(changed(body, WHOLE), SHORT) == body


def test_names_are_changed_and_users_words_are_not() -> None:
    message = {
        "topic": "orders",
        "tag": "orders",
        "keys": ["orders"],
        "body": {"text": "orders", "topic": "orders"},
        "properties": {"topic": "orders", "RETRY_TOPIC": "orders", "PGROUP": "shop"},
    }
    found = changed({"messages": [message], "group": "%DLQ%g", "resource": "topic:orders"}, WHOLE)
    [other] = found["messages"]
    assert other["topic"] == "team-a-orders"
    assert other["properties"] == {
        "topic": "orders",
        "RETRY_TOPIC": "team-a-orders",
        "PGROUP": "team-a-shop",
    }
    assert {name: other[name] for name in ("tag", "keys", "body")} == {
        name: message[name] for name in ("tag", "keys", "body")
    }
    assert (found["group"], found["resource"]) == ("team-a-%DLQ%g", "topic:team-a-orders")


def test_a_value_that_is_no_text_stays_for_the_service_to_refuse() -> None:
    for value in (None, 7, True, {"a": 1}):
        assert changed({"topic": value}, WHOLE) == {"topic": value}


def test_entries_outside_the_namespace_are_left_out() -> None:
    whole = {
        "topics": ["team-a-orders", "team-b-orders", "orders"],
        "offsets": [{"topic": "team-b-orders", "lag": 1}, {"topic": "%RETRY%team-a-g", "lag": 2}],
        "topics_since": {"team-a-orders": 1, "other": 2},
        "properties": {"RETRY_TOPIC": "team-b-orders", "x": "team-b-orders"},
    }
    assert changed(whole, SHORT) == {
        "topics": ["orders"],
        "offsets": [{"topic": "%RETRY%g", "lag": 2}],
        "topics_since": {"orders": 1},
        "properties": {"x": "team-b-orders"},
    }
    with pytest.raises(OutsideError):
        changed({"topic": "team-b-orders"}, SHORT)
    with pytest.raises(OutsideError):
        changed({"message": {"topic": "orders"}}, SHORT)
