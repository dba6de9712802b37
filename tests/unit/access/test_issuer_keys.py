"""The keys of a token issuer: the times of fetches, the usable keys, and the limits of a fetch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import get_default_algorithms

from eruca.contract.issuers import TokenIssuer as IssuerEntry
from eruca_access import issuer_keys
from eruca_access.issuer_keys import (
    ANSWER_SIZE_MAX,
    ASK_SECONDS,
    KEYS_SECONDS_MAX,
    REFRESH_SECONDS,
    RETRY_SECONDS,
    InvalidKeysError,
    IssuerKeys,
    usable_keys,
)
from support.http_peers import peer
from support.token_issuers import AUDIENCE, SigningPair, TokenIssuer, issuing

pytestmark = pytest.mark.anyio

KEYS_PATH = "/realms/eruca/keys"
DISCOVERY_PATH = "/realms/eruca/.well-known/openid-configuration"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with issuing() as running:
        yield running


def keys_of(issuer: TokenIssuer, **others: object) -> IssuerKeys:
    entry = {"name": "corp", "issuer": issuer.url, "audience": AUDIENCE, **others}
    return IssuerKeys(IssuerEntry.model_validate(entry))


async def fetched(keys: IssuerKeys, now: float) -> bool:
    async with httpx.AsyncClient() as client:
        return await keys.fetch(client, now)


async def test_keys_are_found_by_discovery_and_fetched_again_after_a_while(
    issuer: TokenIssuer,
) -> None:
    keys = keys_of(issuer)
    assert keys.is_due(0.0)

    assert await fetched(keys, 0.0) is False

    assert set(keys.keys) == {"first"}
    assert not keys.fault
    assert not keys.is_due(REFRESH_SECONDS - 1)
    assert keys.is_due(REFRESH_SECONDS)


async def test_the_address_of_the_keys_can_be_given(issuer: TokenIssuer) -> None:
    keys = keys_of(issuer, jwks_uri=f"{issuer.url}/keys")

    await fetched(keys, 0.0)

    assert keys.keys.keys() == {"first"}
    assert issuer.fetches == [KEYS_PATH]


async def test_unknown_key_ids_cause_one_fetch_a_minute(issuer: TokenIssuer) -> None:
    keys = keys_of(issuer)
    await fetched(keys, 0.0)

    waits = [keys.ask(now) for now in (1.0, 2.0, 30.0)]

    assert waits == [ASK_SECONDS, ASK_SECONDS - 1, 31.0]
    assert not keys.is_due(ASK_SECONDS - 1)
    assert keys.is_due(ASK_SECONDS)


async def test_an_unknown_key_id_is_looked_for_at_once_if_the_last_fetch_is_old(
    issuer: TokenIssuer,
) -> None:
    keys = keys_of(issuer)
    await fetched(keys, 0.0)

    assert keys.ask(100.0) == 1.0

    assert keys.is_due(100.0)


async def test_a_removed_or_replaced_key_is_told_and_a_new_one_is_not(
    issuer: TokenIssuer,
) -> None:
    keys = keys_of(issuer)
    await fetched(keys, 0.0)

    issuer.pairs.append(SigningPair("second"))
    assert await fetched(keys, 1.0) is False
    issuer.pairs[0] = SigningPair("first")
    assert await fetched(keys, 2.0) is True
    del issuer.pairs[0]
    assert await fetched(keys, 3.0) is True

    assert keys.keys.keys() == {"second"}


async def test_the_last_keys_hold_while_the_issuer_is_away_but_not_for_ever(
    issuer: TokenIssuer,
) -> None:
    keys = keys_of(issuer)
    await fetched(keys, 0.0)
    issuer.stop()

    assert await fetched(keys, 300.0) is False
    assert keys.fault is not None
    assert keys.keys.keys() == {"first"}
    assert keys.is_due(300.0 + RETRY_SECONDS)
    assert await fetched(keys, KEYS_SECONDS_MAX + 1) is True
    assert keys.keys == {}

    issuer.start()
    await fetched(keys, KEYS_SECONDS_MAX + 11)
    assert set(keys.keys) == {"first"}
    assert not keys.fault


@pytest.mark.parametrize(
    ("path", "answer", "fault"),
    [
        (DISCOVERY_PATH, b'{"issuer": "https://other.example"}', "is not that of"),
        (DISCOVERY_PATH, b"[]", "no JSON object"),
        (DISCOVERY_PATH, b"[" * 100_000, "no JSON object"),
        (KEYS_PATH, b"{", "no JSON object"),
        (KEYS_PATH, b"{}", "expected a key set"),
        (KEYS_PATH, b'{"keys": []}', "no key for ES256, RS256, EdDSA"),
        (KEYS_PATH, b'{"keys": ["x", {}, {"kty": 5}]}', "no key for"),
        (KEYS_PATH, b" " * (ANSWER_SIZE_MAX + 1), "more than"),
    ],
)
async def test_an_answer_without_usable_keys_is_a_fault_and_changes_nothing(
    issuer: TokenIssuer, path: str, answer: bytes, fault: str
) -> None:
    keys = keys_of(issuer)
    await fetched(keys, 0.0)
    issuer.answers[path] = answer

    assert await fetched(keys, 300.0) is False

    assert fault in str(keys.fault)
    assert keys.keys.keys() == {"first"}


async def test_keys_elsewhere_than_at_a_safe_address_are_not_fetched(issuer: TokenIssuer) -> None:
    found = {"issuer": issuer.url, "jwks_uri": "http://keys.example/keys"}
    issuer.answers[DISCOVERY_PATH] = json.dumps(found).encode()
    keys = keys_of(issuer)

    await fetched(keys, 0.0)

    assert "jwks_uri of its discovery document" in str(keys.fault)


async def test_an_issuer_that_never_answers_costs_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(issuer_keys, "FETCH_SECONDS", 0.2)

    async def silence(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with peer(silence) as server:
        keys = IssuerKeys(IssuerEntry(name="corp", issuer=server.url, audience=AUDIENCE))
        await fetched(keys, 0.0)

    assert keys.fault == "no answer within 0.2 s"


def public(algorithm: str, key: Any) -> dict[str, Any]:  # noqa: ANN401
    maker: Any = get_default_algorithms()[algorithm]
    return {**json.loads(maker.to_jwk(key.public_key())), "kid": "other"}


def test_only_keys_that_can_sign_tokens_soundly_are_used() -> None:
    good = SigningPair("good", "RS256")
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    others = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "other", "alg": "HS256"},
        {**good.public, "kid": "other", "alg": "none"},
        {**good.public, "kid": "other", "alg": "HS256"},
        {**good.public, "kid": "other", "alg": "RS512"},
        {**good.public, "kid": "other", "alg": ["RS256"]},
        {**good.public, "kid": "other", "use": "enc"},
        {**good.public, "kid": 5},
        {**good.public, "kid": "other", "n": 7},
        {**public("RS256", short), "alg": "RS256"},
        {**public("ES384", ec.generate_private_key(ec.SECP384R1())), "alg": "ES256"},
        public("ES384", ec.generate_private_key(ec.SECP384R1())),
    ]

    assert usable_keys({"keys": [*others, good.public]}).keys() == {"good"}


def test_a_published_private_key_is_used_as_its_public_half() -> None:
    pair = SigningPair("first")
    maker: Any = get_default_algorithms()["ES256"]
    found = usable_keys({"keys": [{**json.loads(maker.to_jwk(pair.private)), "kid": "first"}]})

    assert "d" not in found["first"].members


def test_a_key_set_beyond_all_measure_is_refused() -> None:
    with pytest.raises(InvalidKeysError, match="at most 100 keys"):
        usable_keys({"keys": [SigningPair("a").public] * 101})
