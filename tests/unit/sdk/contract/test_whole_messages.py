"""The body of a message that was found, as it was sent, or why it is not to be had."""

from __future__ import annotations

from typing import Any

import pytest

from eruca.contract.errors import (
    ErucaError,
    NotAcceptableError,
    RecordNotFoundError,
    SearchIncompleteError,
)
from eruca.contract.queries import WholeMessage


def message(body: dict[str, Any] | None, missing: str | None = None) -> WholeMessage:
    return WholeMessage.model_construct(
        broker_name="broker-a",
        offset_message_id="0A000001",
        body=body,
        body_missing=missing,
    )


@pytest.mark.parametrize(
    ("body", "octets"), [({"text": "größer"}, "größer".encode()), ({"base64": "AP8="}, b"\0\xff")]
)
def test_a_body_is_what_was_sent(body: dict[str, Any], octets: bytes) -> None:
    assert message(body).octets() == octets


@pytest.mark.parametrize(
    ("body", "missing", "kind"),
    [
        (None, "retention", RecordNotFoundError),
        (None, "broker_unreachable", SearchIncompleteError),
        ({"base64": "AP8=", "compression": "lz4"}, None, NotAcceptableError),
    ],
)
def test_a_body_that_is_not_to_be_had_says_why(
    body: dict[str, Any] | None, missing: str | None, kind: type[ErucaError]
) -> None:
    with pytest.raises(kind, match="body of 0A000001"):
        message(body, missing).octets()
