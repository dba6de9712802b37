"""Credentials that a program gives: their forms, and that nothing shows a secret."""

from __future__ import annotations

import re

import pytest

from eruca.contract.errors import ValidationError
from eruca.core.credentials import (
    ApiKey,
    ApiKeyFile,
    BearerTokens,
    NamedProvider,
    TlsFiles,
    Token,
    given_credentials,
    is_exposed,
    refresh_after_seconds,
)

KEY = "eruca_ab12_" + "k" * 43


def test_the_repr_of_a_secret_does_not_show_it() -> None:
    shown = repr((ApiKey(KEY), Token(KEY), BearerTokens(lambda: KEY)))

    assert KEY not in shown


@pytest.mark.parametrize("bad", ["", "two words", KEY + "\r\nx: y", "é", "k" * 8193, KEY.encode()])
@pytest.mark.parametrize("kind", [ApiKey, Token])
def test_a_text_that_no_header_can_carry_is_refused_and_not_quoted(
    kind: type[ApiKey | Token], bad: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        kind(bad)

    assert KEY not in str(caught.value)
    assert "contents not shown" in caught.value.detail


@pytest.mark.parametrize(
    ("name", "value", "given"),
    [
        ("ERUCA_API_KEY", f"{KEY}\n", ApiKey(KEY)),
        ("ERUCA_API_KEY_FILE", "/run/key", ApiKeyFile("/run/key")),
        ("ERUCA_TOKEN_PROVIDER", "shop.tokens:fetch", NamedProvider("shop.tokens:fetch")),
        ("ERUCA_API_KEY", "", None),
    ],
)
def test_the_environment_gives_credentials(name: str, value: str, given: object) -> None:
    assert given_credentials({name: value}) == given


def test_credentials_from_two_variables_are_refused() -> None:
    with pytest.raises(ValidationError, match="ERUCA_API_KEY and ERUCA_API_KEY_FILE") as caught:
        given_credentials({"ERUCA_API_KEY": KEY, "ERUCA_API_KEY_FILE": "/run/key"})

    assert KEY not in str(caught.value)


def test_a_private_key_needs_a_certificate() -> None:
    with pytest.raises(ValidationError, match=re.escape("no certificate")):
        TlsFiles.of({"ERUCA_TLS_KEY_FILE": "/run/tls.key"})


@pytest.mark.parametrize(("life", "after"), [(3600.0, 3540.0), (100.0, 80.0), (0.0, 0.0)])
def test_a_token_is_replaced_before_its_end(life: float, after: float) -> None:
    assert refresh_after_seconds(life) == after


@pytest.mark.parametrize(
    ("url", "exposed"),
    [
        ("http://10.0.0.1:9876", True),
        ("http://broker-a:8080", True),
        ("http://[2001:db8::1]:1", True),
        ("http://localhost:9876", False),
        ("http://127.0.0.2:9876", False),
        ("http://[::1]:9876", False),
        ("https://broker-a:8080", False),
    ],
)
def test_plain_http_beyond_the_loopback_is_exposed(url: str, exposed: bool) -> None:
    assert is_exposed(url) is exposed
