"""The command line shows the query service's results with all fields and all gaps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from eruca.cli.found_messages import (
    MESSAGE_HEADINGS,
    PLACE_HEADINGS,
    body_text,
    message_fields,
    message_row,
    missing_line,
    place_row,
    place_text,
)
from eruca.contract.queries import Missing, WholeMessage

AT = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def message(**changes: Any) -> WholeMessage:  # noqa: ANN401
    return WholeMessage.model_validate(
        {
            "message_id": "ID",
            "offset_message_id": "OFFSET",
            "broker_name": "broker-a",
            "log_offset": 17,
            "topic": "orders",
            "queue_id": 0,
            "queue_offset": 5,
            "tag": None,
            "keys": ["k1", "k\x1b2"],
            "born_at": AT,
            "stored_at": AT,
            "size": 99,
            "body": {"text": "two\nlines"},
            "body_missing": None,
            "properties": {"region": "west\n"},
            "sharding_key": None,
            "reconsume_times": 0,
            "flag": 0,
            "system_properties": {},
        }
        | changes
    )


LISTED = {"body": None, "body_missing": "not_asked", "properties": None, "reconsume_times": None}


def test_a_row_has_what_its_headings_say() -> None:
    assert dict(zip(MESSAGE_HEADINGS, message_row(message(), bodies=False), strict=True)) == {
        "stored at": "2026-11-21T08:00:00.000Z",
        "in": "orders/0@5",
        "on": "broker-a",
        "message id": "ID",
        "tag": None,
        "keys": r"k1 k\x1b2",
        "size": 99,
    }
    assert message_row(message(), bodies=True)[-1] == r"two\nlines"
    assert message_row(message(message_id=None), bodies=False)[3] == "OFFSET"
    assert len(place_row(message())) == len(PLACE_HEADINGS)


def test_all_that_is_known_of_a_message_is_shown() -> None:
    fields = dict(message_fields(message()))

    assert fields["on"] == "broker-a, log offset 17"
    assert fields["properties"] == r"region=west\n"
    assert "properties" not in dict(message_fields(message(**LISTED)))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "two\nlines"),
        ({"body": {"text": ""}}, ""),
        ({"body": {"base64": "/wA="}}, "base64:/wA="),
        (LISTED, "no body: it was not requested"),
        (LISTED | {"body_missing": "retention"}, "no body: retention has deleted its record"),
        (LISTED | {"body_missing": "broker_unreachable"}, "no body: its broker does not answer"),
    ],
)
def test_a_body_is_shown_or_why_there_is_none(changes: dict[str, Any], text: str) -> None:
    assert body_text(message(**changes)).startswith(text)


def test_a_place_is_as_much_of_it_as_is_known() -> None:
    assert place_text("orders", 0, 5) == "orders/0@5"
    assert place_text("orders", 0, None) == "orders/0"
    assert place_text("orders", None, None) == "orders"
    assert place_text(None, None, None) is None


def test_what_may_be_missing_is_said_with_the_reason() -> None:
    of_one = Missing(broker_name="broker-b", reason="broker_unreachable", detail="it is\nstopped")
    of_any = Missing(broker_name=None, reason="name_servers_unreachable", detail="none answers")

    assert missing_line(of_one) == r"messages of broker-b may be missing: it is\nstopped"
    assert missing_line(of_any) == "messages may be missing: none answers"
