"""Bearer tokens of an issuer at a real service: who comes in by which token, and who does not."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from cryptography.hazmat.primitives import serialization

from eruca.contract.issuers import TokenIssuer as IssuerEntry
from eruca_access import issuer_keys
from eruca_access import tokens as module
from eruca_access.tokens import CACHED_MAX, LEEWAY_SECONDS, TOKEN_SIZE_MAX
from eruca_broker.app import create_app as create_broker
from eruca_broker.settings import BrokerSettings
from eruca_namesrv.app import create_app
from eruca_namesrv.settings import NamesrvSettings
from support.rules import bearer, write_rules
from support.services import serving
from support.token_issuers import SigningPair, TokenIssuer, issuing

pytestmark = pytest.mark.anyio

OWNER: Final = "user:owner"
ANN: Final = "oidc:corp/ann"
TARGET: Final = "/v1/status"  # needs query on the cluster
READS: Final = {"allow": ["query"], "on": ["cluster"], "to": [ANN]}
PATIENCE_SECONDS: Final = 20.0
INVALID: Final = "the credentials are not valid here"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with issuing() as running:
        yield running


class Service:
    """A name server with rules, and the file of the rules."""

    def __init__(self, client: httpx.AsyncClient, path: Path) -> None:
        self.client = client
        self._path = path

    def allow(self, *rules: Mapping[str, Any], more: str) -> None:
        write_rules(self._path, *rules, roles={"administrator": [OWNER]}, more=more)

    async def ask(self, token: str, target: str = TARGET) -> httpx.Response:
        return await self.client.get(target, headers={"authorization": f"Bearer {token}"})

    async def settled(self, token: str, status: int, target: str = TARGET) -> httpx.Response:
        """Return the first answer with *status*."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (answer := await self.ask(token, target)).status_code != status:
                pass
        return answer


@asynccontextmanager
async def service_with(
    tmp_path: Path,
    issuer: TokenIssuer,
    *rules: Mapping[str, Any],
    **entry: Any,  # noqa: ANN401  (whatever an entry has)
) -> AsyncIterator[Service]:
    path = tmp_path / "rules.toml"
    write_rules(path, *rules, roles={"administrator": [OWNER]}, more=issuer.lines(**entry))
    settings = NamesrvSettings.model_validate({"ERUCA_AUTH_FILE": str(path), "settle_seconds": 0})
    async with (
        serving(create_app(settings), settings) as (_, address),
        httpx.AsyncClient(base_url=f"http://{address[0]}:{address[1]}", timeout=60) as client,
    ):
        yield Service(client, path)


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "EdDSA"])
async def test_a_token_is_its_holders_principal(
    tmp_path: Path, issuer: TokenIssuer, algorithm: str
) -> None:
    issuer.pairs = [SigningPair("first", algorithm)]
    async with service_with(tmp_path, issuer, READS) as service:
        await service.settled(issuer.token("ann"), 200)

        refused = await service.ask(issuer.token("bob"))

        assert refused.status_code == 403
        assert refused.json()["fix"] == "grant query on cluster to oidc:corp/bob"


async def test_claims_give_roles_by_the_mapping_alone(tmp_path: Path, issuer: TokenIssuer) -> None:
    entry = {
        "roles_claim": ["realm_access", "roles"],
        "roles": {"mq-admins": "administrator", "mq-readers": "readers"},
    }
    reads = READS | {"to": ["role:readers"]}
    async with service_with(tmp_path, issuer, reads, **entry) as service:
        await service.settled(issuer.token("ann", realm_access={"roles": ["mq-readers"]}), 200)

        for roles, status in [
            (["mq-admins", "others"], 200),
            ("mq-readers", 200),
            (["administrator"], 403),  # the issuer's own role of that name
            (["readers"], 403),
            ([["mq-readers"]], 403),
            ([5, None], 403),
            ({"mq-readers": 1}, 403),
        ]:
            answer = await service.ask(issuer.token("eve", realm_access={"roles": roles}))
            assert answer.status_code == status, roles
        for claims in ({}, {"realm_access": None}, {"realm_access": ["mq-readers"]}):
            assert (await service.ask(issuer.token("eve", **claims))).status_code == 403


async def test_a_caller_is_told_what_the_roles_of_its_token_allow(
    tmp_path: Path, issuer: TokenIssuer
) -> None:
    entry = {"roles_claim": ["groups"], "roles": {"admins": "administrator"}}
    async with service_with(tmp_path, issuer, **entry) as service:
        token = issuer.token("ann", groups=["admins"])
        await service.settled(token, 200)
        question = {"principal": ANN, "right": "administer", "resource": "cluster"}

        answer = await service.client.post(
            "/v1/access:explain", json=question, headers={"authorization": f"Bearer {token}"}
        )
        others = await service.client.post(
            "/v1/access:explain", json=question, headers=bearer(OWNER)
        )

        assert answer.json()["rule"].endswith("to role:administrator")
        assert others.json()["allowed"] is False  # nobody else knows the roles of its token


def forged(issuer: TokenIssuer, algorithm: str, secret: bytes) -> str:
    """Return a token with a signature of its own."""
    head = {"alg": algorithm, "typ": "JWT", "kid": issuer.pairs[0].kid}
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in (head, issuer.claims())
    ]
    signed = b".".join(parts)
    proof = hmac.digest(secret, signed, hashlib.sha256) if secret else b""
    return (signed + b"." + base64.urlsafe_b64encode(proof).rstrip(b"=")).decode()


def public_pem(issuer: TokenIssuer) -> bytes:
    return (
        issuer.pairs[0]
        .private.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def now() -> int:
    return int(time.time())


CONFUSED: Final[dict[str, tuple[Callable[[TokenIssuer], str], str]]] = {
    "alg none": (lambda i: forged(i, "none", b""), INVALID),
    "alg None": (lambda i: forged(i, "None", b""), INVALID),
    "HS256 with the public key": (lambda i: forged(i, "HS256", public_pem(i)), INVALID),
    "HS256 with the key set": (
        lambda i: forged(i, "HS256", json.dumps(i.pairs[0].public).encode()),
        INVALID,
    ),
    "ES256 said, HMAC done": (lambda i: forged(i, "ES256", public_pem(i)), INVALID),
    "another algorithm than the key's": (
        lambda i: i.signed(i.claims(), SigningPair("first", "RS256")),
        INVALID,
    ),
    "another key of the same id": (lambda i: i.signed(i.claims(), SigningPair("first")), INVALID),
    "no signature": (lambda i: i.token().rpartition(".")[0] + ".", INVALID),
    "cut signature": (lambda i: i.token()[:-8], INVALID),
    "other claims": (
        lambda i: ".".join([i.token("ann").split(".")[0], *i.token("bob").split(".")[1:]])[:-3],
        INVALID,
    ),
    "wrong issuer": (lambda i: i.token(iss="https://other.example"), INVALID),
    "issuer with a slash more": (lambda i: i.token(iss=i.url + "/"), INVALID),
    "issuers in a list": (lambda i: i.token(iss=[i.url]), INVALID),
    "no issuer": (lambda i: i.token(iss=None), INVALID),
    "critical header": (lambda i: i.signed(i.claims(), crit=["exp"]), INVALID),
    "another type": (lambda i: i.signed(i.claims(), typ="logout+jwt"), INVALID),
    "wrong audience": (
        lambda i: i.token(aud="billing"),
        "the token is not for the audience 'eruca'",
    ),
    "no audience": (lambda i: i.token(aud=None), "the token has no claim aud"),
    "expired by a second": (
        lambda i: i.token(exp=now() - int(LEEWAY_SECONDS) - 1),
        "the token has expired",
    ),
    "no expiry": (lambda i: i.token(exp=None), "the token has no claim exp"),
    "expiry in words": (lambda i: i.token(exp="tomorrow"), INVALID),
    "expiry beyond numbers": (lambda i: i.token(exp=float("inf")), INVALID),
    "not yet": (
        lambda i: i.token(nbf=now() + int(LEEWAY_SECONDS) + 2),
        "the token is not valid yet",
    ),
    "no subject": (lambda i: i.token(sub=None), "the token's claim sub is no name"),
    "empty subject": (lambda i: i.token(sub=""), "the token's claim sub is no name"),
    "subject with a space": (lambda i: i.token(sub="a b"), "the token's claim sub is no name"),
    "subject of a homoglyph": (
        lambda i: i.token(sub="\u0430nn"),
        "the token's claim sub is no name",
    ),
    "subject that is long": (lambda i: i.token(sub="a" * 255), "a name of more than 255"),
    "subject that is a number": (lambda i: i.token(sub=5), INVALID),
    "huge": (lambda i: i.token(padding="x" * TOKEN_SIZE_MAX), INVALID),
    "deeply nested": (lambda _: "eyJ" + "W1tb" * 1_500 + ".e30.e30", INVALID),
    "no token": (lambda _: "eyJ", INVALID),
    "only dots": (lambda _: "eyJ" + "." * 5_000, INVALID),
    "a list": (lambda _: "eyJ.W10.W10", INVALID),
}


async def test_everything_but_a_valid_token_is_refused(tmp_path: Path, issuer: TokenIssuer) -> None:
    async with service_with(tmp_path, issuer, READS) as service:
        await service.settled(issuer.token(), 200)
        for name, (make, detail) in CONFUSED.items():
            token = make(issuer)

            answer = await service.ask(token)

            assert answer.status_code == 401, name
            assert answer.json()["detail"].startswith(detail) or detail in answer.text, name
            assert token[-20:] not in answer.text, name
            assert "retry-after" not in answer.headers, name
        assert (await service.ask(issuer.token())).status_code == 200


async def test_clocks_may_differ_by_the_leeway(tmp_path: Path, issuer: TokenIssuer) -> None:
    async with service_with(tmp_path, issuer, READS) as service:
        await service.settled(issuer.token(), 200)
        assert (await service.ask(issuer.token(exp=now() - 2))).status_code == 200
        assert (await service.ask(issuer.token(nbf=now() + 2))).status_code == 200
        assert (await service.ask(issuer.token(aud=["billing", "eruca"]))).status_code == 200


async def test_a_token_that_was_verified_expires_all_the_same(
    tmp_path: Path, issuer: TokenIssuer
) -> None:
    async with service_with(tmp_path, issuer, READS) as service:
        await service.settled(issuer.token(), 200)
        token = issuer.token(exp=now() - int(LEEWAY_SECONDS) + 2)
        assert (await service.ask(token)).status_code == 200

        answer = await service.settled(token, 401)

        assert answer.json()["detail"] == "the token has expired"
        assert answer.json()["fix"].startswith("get another token of the issuer corp")


async def test_made_up_key_ids_cause_no_more_fetches(tmp_path: Path, issuer: TokenIssuer) -> None:
    async with service_with(tmp_path, issuer, READS) as service:
        await service.settled(issuer.token(), 200)

        for number in range(50):
            answer = await service.ask(issuer.signed(issuer.claims(), kid=f"made up {number}"))
            assert answer.status_code == 401
            assert 1 <= int(answer.headers["retry-after"]) <= 61

        assert issuer.jwks_count == 1
        assert (await service.ask(issuer.token())).status_code == 200


async def test_a_new_key_is_fetched_when_a_token_names_it_and_an_old_one_ends(
    tmp_path: Path, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "ASK_SECONDS", 0.1)
    async with service_with(tmp_path, issuer, READS) as service:
        old = issuer.token()
        await service.settled(old, 200)
        issuer.pairs = [SigningPair("second", "RS256")]

        await service.settled(issuer.token(), 200)

        answer = await service.ask(old)  # it was verified, and its key is gone
        assert answer.status_code == 401


async def test_a_pull_that_waits_ends_when_the_key_of_its_token_is_withdrawn(
    tmp_path: Path, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "ASK_SECONDS", 0.1)
    rules = {"allow": ["administer", "consume"], "on": ["topic:orders"], "to": [ANN]}
    path = write_rules(tmp_path / "rules.toml", rules, more=issuer.lines())
    settings = BrokerSettings.model_validate(
        {
            "store_dir": tmp_path / "store",
            "segment_bytes": 16 * 1024**2,
            "ERUCA_AUTH_FILE": str(path),
            "namesrv_urls": "",
        }
    )
    async with (
        serving(create_broker(settings), settings) as (_, address),
        httpx.AsyncClient(base_url=f"http://{address[0]}:{address[1]}", timeout=60) as client,
    ):
        service, topic = Service(client, path), "/v1/topics/orders"
        old = issuer.token()
        await service.settled(old, 404, topic)
        await client.put(topic, json={}, headers={"authorization": f"Bearer {old}"})
        pull = f"{topic}/queues/0/messages?offset=0&wait_seconds=30"
        held = asyncio.create_task(service.ask(old, pull))
        await service.settled(old, 200, topic)
        assert not held.done()

        issuer.pairs = [SigningPair("second")]
        await service.settled(issuer.token(), 200, topic)

        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await held).status_code == 401


async def test_known_tokens_are_good_while_the_issuer_is_away(
    tmp_path: Path, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "REFRESH_SECONDS", 0.1)
    async with service_with(tmp_path, issuer, READS) as service:
        await service.settled(issuer.token(), 200)
        issuer.stop()

        async with asyncio.timeout(PATIENCE_SECONDS):
            while (
                'issuer_unreachable{issuer="corp"} 1.0'
                not in (await service.client.get("/metrics", headers=bearer(OWNER))).text
            ):
                pass

        assert (await service.ask(issuer.token("ann", jti="another"))).status_code == 200


async def test_a_service_starts_and_serves_keys_while_the_issuer_is_away(
    tmp_path: Path, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "RETRY_SECONDS", 0.2)
    issuer.stop()
    async with service_with(tmp_path, issuer, READS) as service:
        assert (await service.client.get(TARGET, headers=bearer(OWNER))).status_code == 200
        answer = await service.ask(issuer.token())  # nobody can say that it is not valid
        assert answer.status_code == 503
        assert answer.headers["retry-after"] in {"1", "2"}  # until the keys are asked for again
        assert answer.json()["detail"] == "the keys of the token's issuer are not known yet"

        issuer.start()

        await service.settled(issuer.token(), 200)


async def test_tokens_of_an_issuer_that_leaves_the_rules_are_refused(
    tmp_path: Path, issuer: TokenIssuer
) -> None:
    async with service_with(tmp_path, issuer, READS) as service:
        token = issuer.token()
        await service.settled(token, 200)

        service.allow(READS, more="")
        await service.settled(token, 401)
        service.allow(READS, more=issuer.lines(audience="billing"))
        await service.settled(issuer.token(aud="billing"), 200)

        assert (await service.ask(token)).status_code == 401


def test_the_number_of_cached_tokens_is_limited(
    issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CACHED_MAX == 10_000
    monkeypatch.setattr(module, "CACHED_MAX", 2)
    entry = IssuerEntry(
        name="corp", issuer=issuer.url, audience="eruca", jwks_uri=f"{issuer.url}/keys"
    )
    tokens = module.Tokens([entry])
    asyncio.run(tokens.fetch())
    for number in range(5):
        tokens.holder_of(issuer.token(jti=str(number)))
    assert len(tokens._verified) == 2
