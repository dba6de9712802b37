"""Messages in JSON: what is taken, and what is not guessed at."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eruca.contract.limits import BATCH_COUNT_MAX, PULL_QUEUE_COUNT_MAX, USER_PROPERTY_COUNT_MAX
from eruca.contract.messages import (
    MultiPullRequest,
    NewMessage,
    NewMessages,
    PulledBody,
    QueuePosition,
    SendReceipt,
)

DECODE = msgspec.json.decode


def encoded(**fields: Any) -> bytes:  # noqa: ANN401 - any JSON is what is tested
    return msgspec.json.encode({"body": {"text": "x"}} | fields)


def raw_json(message: NewMessage) -> bytes:
    assert isinstance(message.body.json, msgspec.Raw)
    return bytes(message.body.json)


def test_a_message_needs_a_body_and_nothing_else() -> None:
    message = DECODE(encoded(), type=NewMessage)

    assert message.body.text == "x"
    assert message.body.json is msgspec.UNSET
    assert message == NewMessage(message.body)


def test_a_json_body_is_kept_as_it_came() -> None:
    message = DECODE(b'{"body": {"json": {"a":  1.0, "b":[ ]}}}', type=NewMessage)

    assert raw_json(message) == b'{"a":  1.0, "b":[ ]}'


def test_a_json_body_may_be_null() -> None:
    assert raw_json(DECODE(b'{"body": {"json": null}}', type=NewMessage)) == b"null"


@pytest.mark.parametrize(
    "fields",
    [
        {"tag": ""},
        {"keys": [""]},
        {"keys": ["a b"]},
        {"keys": "k"},
        {"properties": {"a": 1}},
        {"properties": {str(n): "" for n in range(USER_PROPERTY_COUNT_MAX + 1)}},
        {"sharding_key": ""},
        {"message_id": ""},
        {"message_id": "x" * 256},
        {"flag": 2**31},
        {"flag": -(2**31) - 1},
        {"body": "x"},
        {"body": {"text": 5}},
        {"body": {"xml": "<a/>"}},
        {"colour": "green"},
    ],
)
def test_a_wrong_or_unknown_field_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        DECODE(encoded(**fields), type=NewMessage)


@pytest.mark.parametrize("count", [0, BATCH_COUNT_MAX + 1])
def test_a_batch_has_some_but_not_too_many_messages(count: int) -> None:
    body = b'{"messages":[' + b",".join([encoded()] * count) + b"]}"

    with pytest.raises(msgspec.ValidationError):
        DECODE(body, type=NewMessages)


def test_a_pulled_body_shows_the_one_form_it_has() -> None:
    assert msgspec.json.encode(PulledBody(text="x")) == b'{"text":"x"}'
    assert msgspec.json.encode(PulledBody(base64="eA==")) == b'{"base64":"eA=="}'


def test_a_receipt_comes_back_as_it_was_sent() -> None:
    receipt = SendReceipt(
        topic="orders",
        broker_name="broker-a",
        queue_id=1,
        queue_offset=2**62,
        log_offset=3,
        message_id="ID",
        offset_message_id="OFFSET",
        stored_at="2024-01-01T00:00:00Z",
        durability="written",
    )

    assert DECODE(msgspec.json.encode(receipt), type=SendReceipt) == receipt


def test_a_position_is_never_negative() -> None:
    with pytest.raises(msgspec.ValidationError):
        DECODE(b'{"topic":"t","queue_id":0,"offset":-1}', type=QueuePosition)


def test_a_pull_of_many_queues_names_some_but_not_too_many() -> None:
    queue = {"topic": "orders", "queue_id": 0, "offset": 0}

    assert len(pull_of([queue] * PULL_QUEUE_COUNT_MAX).queues) == PULL_QUEUE_COUNT_MAX
    for count in (0, PULL_QUEUE_COUNT_MAX + 1):
        with pytest.raises(msgspec.ValidationError):
            pull_of([queue] * count)


def pull_of(queues: list[dict[str, Any]]) -> MultiPullRequest:
    return DECODE(msgspec.json.encode({"queues": queues}), type=MultiPullRequest)
