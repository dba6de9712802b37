"""The public keys of one token issuer: fetched in the background, never for a request.

A request that comes with a key id that is not known yet cannot wait: the gate decides at once. So
it asks for a fetch, and is refused with the time after which to try again. All such requests
together cause at most one fetch in :data:`ASK_SECONDS`, whatever they make up.

Keys are fetched again every :data:`REFRESH_SECONDS`. While the issuer is unreachable its last keys
stay valid, but for no longer than :data:`KEYS_SECONDS_MAX`: an attacker who can cut a service off
from its issuer must not keep a leaked key alive.

Source: RFC 7517 (JSON Web Key); OpenID Connect Discovery 1.0, section 4; RFC 8725 (JSON Web Token
Best Current Practices), sections 3.1 and 3.2.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from eruca.contract.issuers import TokenIssuer, checked_issuer_url

if TYPE_CHECKING:
    import httpx
    import jwt

ALGORITHMS: Final = ("ES256", "RS256", "EdDSA")
ASK_SECONDS: Final = 60.0  # between two fetches for the sake of unknown key ids
REFRESH_SECONDS: Final = 300.0
RETRY_SECONDS: Final = 10.0  # after a failed fetch
FETCH_SECONDS: Final = 10.0  # for the whole fetch
KEYS_SECONDS_MAX: Final = 86_400.0
ANSWER_SIZE_MAX: Final = 512 * 1024  # bytes of a document
KEY_COUNT_MAX: Final = 100
_PUBLIC_MEMBERS: Final = ("kty", "crv", "alg", "n", "e", "x", "y")
_DISCOVERY: Final = "/.well-known/openid-configuration"

_log = structlog.get_logger()


class InvalidKeysError(Exception):
    """The issuer's answer has no usable keys; the text says why."""


@dataclass(frozen=True, eq=False, slots=True)
class SigningKey:
    """A public key, bound to the one algorithm for which it may be used."""

    key: jwt.PyJWK
    members: dict[str, Any]


class IssuerKeys:
    """The keys of one issuer.

    Args:
        issuer: The issuer.
    """

    def __init__(self, issuer: TokenIssuer) -> None:
        self.issuer = issuer
        self.keys: dict[str, SigningKey] = {}  # by key id; empty: the key has none
        self.fault: str | None = None  # of the last fetch
        self._fetch_at = float("-inf")  # by the monotonic clock, as the others
        self._began_at = float("-inf")
        self._fetched_at = float("-inf")

    def ask(self, now: float) -> float:
        """Ask for a fetch, because a token names a key that is not known.

        Returns the seconds after which the key is known, if there is one.
        """
        if self.keys:
            self._fetch_at = min(self._fetch_at, max(now, self._began_at + ASK_SECONDS))
        return max(self._fetch_at - now, 0.0) + 1.0

    def is_due(self, now: float) -> bool:
        """Return whether it is time to fetch the keys."""
        return now >= self._fetch_at

    async def fetch(self, client: httpx.AsyncClient, now: float) -> bool:
        """Fetch the keys; return whether one that was valid is not valid any more."""
        import httpx  # here, as the client: most services have no issuer

        self._began_at = now
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                keys = await self._fetched(client)
        except (InvalidKeysError, httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            self._fetch_at = now + RETRY_SECONDS
            fault = _why(error)
            if fault != self.fault:
                _log.warning("keys of a token issuer not fetched", issuer=self.name, why=fault)
            self.fault = fault
            keys = self.keys if now - self._fetched_at <= KEYS_SECONDS_MAX else {}
        else:
            self._fetch_at, self._fetched_at = now + REFRESH_SECONDS, now
            if self.fault is not None or keys.keys() != self.keys.keys():
                _log.info("keys of a token issuer fetched", issuer=self.name, keys=len(keys))
            self.fault = None
        before, self.keys = self.keys, keys
        return any(
            kid not in keys or keys[kid].members != key.members for kid, key in before.items()
        )

    @property
    def name(self) -> str:
        """The issuer's name."""
        return self.issuer.name

    async def _fetched(self, client: httpx.AsyncClient) -> dict[str, SigningKey]:
        issuer = self.issuer
        uri = issuer.jwks_uri
        if uri is None:
            found = await _json(client, issuer.issuer.rstrip("/") + _DISCOVERY)
            if found.get("issuer") != issuer.issuer:
                raise InvalidKeysError(f"its discovery document is not that of {issuer.issuer}")
            try:
                uri = checked_issuer_url(str(found.get("jwks_uri", "")))
            except ValueError as error:
                raise InvalidKeysError(f"jwks_uri of its discovery document: {error}") from error
        return usable_keys(await _json(client, uri))


def usable_keys(document: dict[str, Any]) -> dict[str, SigningKey]:
    """Return the keys of a key set that may sign tokens, by their ids.

    Keys for encryption, of other algorithms, too short or of unknown form are skipped: an issuer
    may have them for others.

    Raises:
        InvalidKeysError: None is left, or the document is no key set.
    """
    entries = document.get("keys")
    if not isinstance(entries, list) or len(entries) > KEY_COUNT_MAX:
        raise InvalidKeysError(f"expected a key set with at most {KEY_COUNT_MAX} keys")
    found: dict[str, SigningKey] = {}
    for entry in entries:
        if isinstance(entry, dict) and entry.get("use", "sig") == "sig":
            key = _signing_key(entry)
            kid = entry.get("kid", "")
            if key is not None and isinstance(kid, str):
                found.setdefault(kid, key)
    if not found:
        raise InvalidKeysError(f"its key set has no key for {', '.join(ALGORITHMS)}")
    return found


def _signing_key(entry: dict[str, Any]) -> SigningKey | None:
    import jwt  # here: most services have no issuer

    # Only the public members: a key set with private keys is its owner's fault, not our secret.
    members: dict[str, Any] = {name: entry[name] for name in _PUBLIC_MEMBERS if name in entry}
    # Above all no symmetric keys: each verifier could sign with such a key.
    is_fit = members.get("kty") in ("RSA", "EC", "OKP")
    if not is_fit or members.get("alg", ALGORITHMS[0]) not in ALGORITHMS:
        return None
    try:
        key = jwt.PyJWK(members)
        if key.algorithm_name not in ALGORITHMS or key.Algorithm.check_key_length(key.key):
            return None
    except (jwt.PyJWTError, TypeError, ValueError):
        return None
    if key.algorithm_name == "ES256" and members.get("crv") != "P-256":
        return None
    return SigningKey(key, members)


async def _json(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    """Fetch a JSON object.

    Raises:
        InvalidKeysError: The answer is something else.
    """
    content = bytearray()
    async with client.stream("GET", url, headers={"accept": "application/json"}) as answer:
        if answer.status_code != 200:
            raise InvalidKeysError(f"{url} answered {answer.status_code}; expected 200")
        async for piece in answer.aiter_bytes():
            content += piece
            if len(content) > ANSWER_SIZE_MAX:
                raise InvalidKeysError(f"{url} answered more than {ANSWER_SIZE_MAX} bytes")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InvalidKeysError(f"{url} answered no JSON object")
    return document


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {FETCH_SECONDS:g} s"
    return str(error) or type(error).__name__
