"""Messages as the command line shows them: whatever they hold, each stays on its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.cli.shown_messages import (
    body_document,
    body_line,
    message_document,
    message_line,
    one_line,
)
from eruca.contract.records import Record, encode_record
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("größer 東京", "größer 東京"),
        ("two\nlines\tand a \x1b[31mcolour", "two\\nlines\\tand a \\x1b[31mcolour"),
        ("x" * 501, "x" * 500 + "…"),
        ("x" * 500, "x" * 500),
    ],
)
def test_a_text_is_shown_on_one_line_and_cut_where_it_is_long(text: str, shown: str) -> None:
    assert one_line(text) == shown


@given(st.text())
def test_no_text_moves_the_cursor_or_changes_a_colour(text: str) -> None:
    assert one_line(text).isprintable()


@pytest.mark.parametrize(
    ("body", "is_json", "document", "line"),
    [
        (b"text", False, {"text": "text"}, "text"),
        ("ü".encode(), False, {"text": "ü"}, "ü"),
        (b"\xff\x00", False, {"base64": "/wA="}, "base64:/wA="),
        (b'{"a": [1]}', False, {"text": '{"a": [1]}'}, '{"a": [1]}'),
        ('{"a": "ü"}'.encode(), True, {"json": {"a": "ü"}}, '{"a":"ü"}'),
        (b"null", True, {"json": None}, "null"),
        (b"{", True, {"text": "{"}, "{"),
        (b"\xff", True, {"base64": "/w=="}, "base64:/w=="),
    ],
)
def test_a_body_is_shown_as_what_it_was_sent(
    body: bytes, is_json: bool, document: dict[str, object], line: str
) -> None:
    properties = {"ERUCA_BODY_FORMAT": "json"} if is_json else {}

    assert body_document(body, properties) == document
    assert body_line(document) == line


def test_what_cannot_be_read_says_so_in_place_of_its_body() -> None:
    record = bytearray(encode_record(Record("orders", b"paid", properties="TAGS\x01t\x02")))
    record[record.index(b"paid")] ^= 1
    message = ReceivedMessage(MessageQueue("orders", "a", 3), 5, bytes(record), 0, len(record))
    reason = "orders/a/3 at 5: the body does not match its checksum"

    document = message_document(message)

    assert (document["body"], document["tag"]) == ({"unreadable": reason}, "t")
    assert message_line(message).plain.endswith(f"a/3@5 [t] unreadable: {reason}")
