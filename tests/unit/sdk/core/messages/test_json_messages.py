"""Messages as JSON: those that are delivered later, and half messages."""

from __future__ import annotations

import msgspec

import eruca
from eruca.core.messages.json_messages import json_batch

VALUE = {"order": 17, "lines": ["\u00e4", 1.5]}


def test_a_body_made_of_a_json_value_goes_as_that_value_and_any_other_as_its_bytes() -> None:
    messages = [
        eruca.Message.json("orders", VALUE, delay_seconds=5),
        eruca.Message("orders", b'{"order": 17}', delay_seconds=5),
    ]

    batch = msgspec.json.decode(json_batch(messages, ["a", "b"]))

    assert [new["body"] for new in batch["messages"]] == [
        {"json": VALUE},
        {"base64": "eyJvcmRlciI6IDE3fQ=="},
    ]
