"""Signatures of webhooks, as Standard Webhooks has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca_txn_checker.core.webhook_signing import SECRET_SIZE, secret_of, signed_headers


def test_the_example_of_standard_webhooks_is_signed_as_it_says() -> None:
    """Source: Standard Webhooks, the verification example of its reference libraries."""
    headers = signed_headers(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )

    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize(
    "secret", ["twenty-four characters!!", "whsec_this is no base64", "whsec_naïve-secret-of-ours"]
)
def test_a_secret_that_is_no_base64_signs_as_it_is(secret: str) -> None:
    first = signed_headers(secret, "id", 1, b"body")

    assert first == signed_headers(secret, "id", 1, b"body")
    assert first != signed_headers(secret + "?", "id", 1, b"body")


@given(body=st.binary(), other=st.binary(), at=st.integers(0, 10**10), later=st.integers(0, 10**10))
def test_another_body_or_time_is_signed_otherwise(
    body: bytes, other: bytes, at: int, later: int
) -> None:
    secret = secret_of(b"s" * SECRET_SIZE)

    one = signed_headers(secret, "id", at, body)["webhook-signature"]
    two = signed_headers(secret, "id", later, other)["webhook-signature"]

    assert (one == two) is ((body, at) == (other, later))
