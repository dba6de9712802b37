"""Log-in at an issuer (OpenID Connect): the authorization code flow with PKCE.

The browser is sent to the issuer with a random **state**, which a cookie binds to this browser, a
**nonce**, which comes back in the ID token, and the digest of a **verifier**, without which nobody
can exchange the code. All three are used once, and forgotten after ten minutes.

The access token is the caller's credential, as a token that somebody types is: the console's gate
and every service verify it. The ID token only proves that the answer belongs to this log-in. It
comes from the issuer itself, so its signature says no more than the connection does.

Source: RFC 6749 section 4.1; RFC 7636 (PKCE); OpenID Connect Core 1.0 section 3.1.3.7; RFC 9700.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import Any, Final
from urllib.parse import urlencode

from eruca.contract.errors import (
    OverloadedError,
    TransportError,
    UnauthenticatedError,
    ValidationError,
)
from eruca.services.http import ANONYMOUS, httpx_client
from eruca_console.core.code_client import CodeClient

PENDING_SECONDS: Final = 600.0
PENDING_MAX: Final = 1_000  # log-ins that were begun, by anybody, and not finished
METADATA_SECONDS: Final = 3_600.0
REQUEST_SECONDS: Final = 10.0
LEEWAY_SECONDS: Final = 5.0  # by which the issuer's clock may differ
LIFE_SECONDS_DEFAULT: Final = 300.0  # of a token whose issuer does not say
_RANDOM_SIZE: Final = 32  # bytes


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """The tokens of a log-in; a repr shows none."""

    access_token: str
    refresh_token: str | None
    life_seconds: float

    def __repr__(self) -> str:
        """Return a text without a token."""
        return f"IssuedTokens(life_seconds={self.life_seconds:g})"


@dataclass(frozen=True, slots=True)
class _Pending:
    verifier: str
    nonce: str
    target: str
    redirect_uri: str
    begun_at: float


class CodeFlow:
    """Logs people in at one issuer.

    Args:
        client: The console as the issuer's client.
        now: Returns monotonic seconds.
    """

    def __init__(self, client: CodeClient, *, now: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._now = now
        self._pending: dict[str, _Pending] = {}  # by state, the oldest first
        self._metadata: tuple[Mapping[str, Any], float] | None = None

    async def begin(self, target: str, redirect_uri: str) -> tuple[str, str]:
        """Return the state of a new log-in, and the URL at the issuer to send the browser to.

        Args:
            target: The page to show afterwards.
            redirect_uri: The console's own URL to which the issuer sends the browser back.

        Raises:
            TransportError: The issuer does not answer.
            OverloadedError: Too many log-ins were begun.
        """
        metadata = await self._discovered()
        now = self._now()
        for state, one in list(self._pending.items()):
            if now - one.begun_at >= PENDING_SECONDS:
                del self._pending[state]
        if len(self._pending) >= PENDING_MAX:
            raise OverloadedError(
                "too many log-ins were begun and not finished",
                fix="wait a few minutes, then log in again",
                retry_after_seconds=60,
            )
        state, nonce, verifier = (secrets.token_urlsafe(_RANDOM_SIZE) for _ in range(3))
        self._pending[state] = _Pending(verifier, nonce, target, redirect_uri, now)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
        query = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._client.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge.decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        endpoint = _url_of(metadata, "authorization_endpoint")
        return state, f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def finish(
        self, bound_state: str | None, answer: Mapping[str, str]
    ) -> tuple[IssuedTokens, str]:
        """Return the tokens of a log-in, and the page to show.

        Args:
            bound_state: The state in the browser's cookie.
            answer: The parameters with which the issuer has sent the browser back.

        Raises:
            UnauthenticatedError: The answer belongs to no log-in of this browser, or refuses it.
            TransportError: The issuer does not answer.
        """
        state = answer.get("state", "")
        is_bound = bound_state is not None and hmac.compare_digest(
            state.encode(), bound_state.encode()
        )
        pending = self._pending.pop(state, None) if is_bound else None
        if pending is None or self._now() - pending.begun_at >= PENDING_SECONDS:
            raise UnauthenticatedError(
                "this log-in was not begun in this browser, or too long ago", fix="log in again"
            )
        if answer.get("iss", self._client.issuer) != self._client.issuer:  # RFC 9207
            raise UnauthenticatedError("another issuer has answered", fix="log in again")
        if "code" not in answer:
            said = answer.get("error_description") or answer.get("error") or "it gave no code"
            raise UnauthenticatedError(f"the issuer has refused: {said[:200]}", fix="log in again")
        given = await self._token_request(
            {
                "grant_type": "authorization_code",
                "code": answer["code"],
                "redirect_uri": pending.redirect_uri,
                "code_verifier": pending.verifier,
            }
        )
        self._check_id_token(given.get("id_token"), pending.nonce)
        return _tokens_of(given, None), pending.target

    async def renewed(self, tokens: IssuedTokens) -> IssuedTokens:
        """Return new tokens for the same person.

        Raises:
            UnauthenticatedError: The issuer gives none any more.
            TransportError: It does not answer.
        """
        assert tokens.refresh_token is not None
        given = await self._token_request(
            {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token}
        )
        return _tokens_of(given, tokens.refresh_token)

    def end_url(self) -> str | None:
        """Return the URL at which a person ends the session at the issuer; None: unknown."""
        found = None if self._metadata is None else self._metadata[0].get("end_session_endpoint")
        if not isinstance(found, str) or not found.startswith(("https://", "http://")):
            return None
        return f"{found}?{urlencode({'client_id': self._client.client_id})}"

    def _check_id_token(self, token: object, nonce: str) -> None:
        import jwt  # here, as httpx: most consoles have no issuer

        try:
            claims = jwt.decode(str(token or ""), options={"verify_signature": False})
        except jwt.InvalidTokenError:
            raise UnauthenticatedError(
                "the issuer has given no valid ID token", fix="request the scope openid"
            ) from None
        given = claims.get("aud")
        audiences = given if isinstance(given, list) else [given]
        expires_at = claims.get("exp")
        is_sound = (
            claims.get("iss") == self._client.issuer
            and self._client.client_id in audiences
            and isinstance(expires_at, int | float)
            and expires_at > time() - LEEWAY_SECONDS
            and hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode())
        )
        if not is_sound:
            raise UnauthenticatedError(
                "the issuer's ID token is not of this log-in", fix="log in again"
            )

    async def _token_request(self, fields: Mapping[str, str]) -> Mapping[str, Any]:
        endpoint = _url_of(await self._discovered(), "token_endpoint")
        form = {**fields, "client_id": self._client.client_id}
        if self._client.secret_file is not None:
            form["client_secret"] = _secret_in(self._client.secret_file)
        given = await self._answer("POST", endpoint, form)
        if "access_token" not in given:
            said = str(given.get("error_description") or given.get("error") or "it gave no token")
            raise UnauthenticatedError(f"the issuer has refused: {said[:200]}", fix="log in again")
        return given

    async def _discovered(self) -> Mapping[str, Any]:
        if self._metadata is not None and self._now() - self._metadata[1] < METADATA_SECONDS:
            return self._metadata[0]
        url = f"{self._client.issuer.rstrip('/')}/.well-known/openid-configuration"
        found = await self._answer("GET", url, None)
        if found.get("issuer") != self._client.issuer:
            raise TransportError(
                f"{url}: expected the issuer {self._client.issuer}",
                fix="correct ERUCA_CONSOLE_OIDC_ISSUER",
            )
        self._metadata = (found, self._now())
        return found

    async def _answer(
        self, method: str, url: str, form: Mapping[str, str] | None
    ) -> Mapping[str, Any]:
        import httpx

        try:
            async with httpx_client(ANONYMOUS, timeout=REQUEST_SECONDS) as client:
                answer = await client.request(
                    method, url, data=form, headers={"accept": "application/json"}
                )
            found = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            # Not the request: its form has secrets.
            raise TransportError(
                f"the issuer does not answer at {url}: {type(error).__name__}",
                fix="see whether it runs, then log in again",
            ) from None
        if not isinstance(found, dict) or answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise TransportError(
                f"the issuer's answer at {url} is invalid: status {answer.status_code}",
                fix="see whether it runs, then log in again",
            )
        return found


def _secret_in(name: str) -> str:
    """Return the client's secret, read again each time because it may be replaced."""
    try:
        return Path(name).read_text().strip()
    except OSError as error:
        raise TransportError(
            f"the client's secret cannot be read: {error.strerror}",
            fix="correct ERUCA_CONSOLE_OIDC_CLIENT_SECRET_FILE",
        ) from None


def _url_of(metadata: Mapping[str, Any], name: str) -> str:
    found = metadata.get(name)
    if not isinstance(found, str) or not found.startswith(("https://", "http://")):
        raise TransportError(f"the issuer's metadata have no {name}", fix="correct the issuer")
    return found


def _tokens_of(given: Mapping[str, Any], refresh_token: str | None) -> IssuedTokens:
    life = given.get("expires_in")
    is_number = isinstance(life, int | float) and not isinstance(life, bool) and life > 0
    access, refresh = given["access_token"], given.get("refresh_token") or refresh_token
    if not isinstance(access, str) or not isinstance(refresh, str | None):
        raise ValidationError("the issuer's tokens are no texts", fix="correct the issuer")
    return IssuedTokens(access, refresh, float(life) if is_number else LIFE_SECONDS_DEFAULT)  # type: ignore[arg-type]
