"""The producer without a network: arguments that it refuses."""

from __future__ import annotations

import pytest

import eruca
from eruca.contract.errors import ValidationError
from support.sending_clients import client_of, message, storing

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("given", [None, "text", b"bytes", 7])
async def test_what_is_no_message_is_refused_by_what_it_is(given: object) -> None:
    client, hot = client_of(storing)
    async with client, client.producer() as producer:
        for send in (producer.send, producer.submit, producer.send_oneway):
            with pytest.raises(ValidationError, match="message"):
                await send(given)  # type: ignore[arg-type]
        with pytest.raises(ValidationError, match="message"):
            await producer.send_many([message(), given])  # type: ignore[list-item]

    assert hot.requests == []


async def test_a_number_is_no_queue_to_send_to() -> None:
    client, hot = client_of(storing)
    async with client, client.producer() as producer:
        for send in (producer.send, producer.submit):
            with pytest.raises(
                ValidationError,
                match=r"expected a MessageQueue, found 3|3 is not an object of eruca",
            ):
                await send(message(), queue=3)  # type: ignore[arg-type]
        with pytest.raises(
            ValidationError, match=r"expected a MessageQueue, found 3|3 is not an object of eruca"
        ):
            await producer.send_many([message(), message()], queue=3)  # type: ignore[arg-type]

    assert hot.requests == []


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("buffer_bytes_max", 0, "buffer_bytes_max: expected 1 or more, found 0"),
        (
            "compression_threshold_bytes",
            -1,
            "compression_threshold_bytes: expected 0 or more, found -1",
        ),
        ("copies", 0, "copies: expected 1 to 16, found 0"),
        ("retries_max", -1, "retries_max: expected 0 or more, found -1"),
        (
            "send_timeout_seconds",
            float("nan"),
            "send_timeout_seconds: expected seconds above 0, found nan",
        ),
    ],
)
async def test_a_number_that_means_nothing_is_refused_by_name(
    option: str, value: float, said: str
) -> None:
    async with eruca.AsyncClient() as client:
        with pytest.raises(ValidationError, match=said):
            client.producer(**{option: value})  # type: ignore[arg-type]
