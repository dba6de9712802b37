"""An issuer at which a person logs in: the authorization code flow with PKCE, over HTTP."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from support.token_issuers import TokenIssuer

CLIENT_ID = "console"


@dataclass(frozen=True)
class _Granted:
    challenge: str
    nonce: str
    redirect_uri: str


class CodeIssuer(TokenIssuer):
    """An issuer that asks nobody: each person is *subject*, and agrees."""

    def __init__(self) -> None:
        self.subject = "ann"
        self.life_seconds = 300
        self.refuses = False
        self.changes: dict[str, object] = {}  # of claims of ID tokens, for a dishonest issuer
        self._codes: dict[str, _Granted] = {}
        self._refresh_tokens: set[str] = set()
        super().__init__()

    def answer(self, path: str) -> bytes:
        if path != "/realms/eruca/.well-known/openid-configuration":
            return super().answer(path)
        metadata = {
            **json.loads(super().answer(path)),
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "end_session_endpoint": f"{self.url}/logout",
        }
        return json.dumps(metadata).encode()

    def location(self, path: str) -> str | None:
        parts = urlsplit(path)
        if parts.path != "/realms/eruca/authorize":
            return None
        asked = dict(parse_qsl(parts.query))
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT_ID)
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        answer = {"state": asked["state"], "iss": self.url}
        if self.refuses:
            answer["error"] = "access_denied"
        else:
            answer["code"] = secrets.token_urlsafe()
            self._codes[answer["code"]] = _Granted(
                asked["code_challenge"], asked["nonce"], asked["redirect_uri"]
            )
        return f"{asked['redirect_uri']}?{urlencode(answer)}"

    def posted(self, path: str, form: str) -> tuple[int, bytes]:
        assert path == "/realms/eruca/token"
        given = {name: values[0] for name, values in parse_qs(form).items()}
        if given.get("grant_type") == "refresh_token":
            if given["refresh_token"] not in self._refresh_tokens:
                return 400, b'{"error": "invalid_grant"}'
            self._refresh_tokens.remove(given["refresh_token"])  # each is used once
            return 200, json.dumps(self._tokens()).encode()
        granted = self._codes.pop(given.get("code", ""), None)
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if granted is None or (granted.challenge, granted.redirect_uri) != (
            challenge,
            given.get("redirect_uri"),
        ):
            return 400, b'{"error": "invalid_grant"}'
        claims = {"aud": CLIENT_ID, "nonce": granted.nonce, **self.changes}
        id_token = self.token(self.subject, **claims)
        return 200, json.dumps({**self._tokens(), "id_token": id_token}).encode()

    def _tokens(self) -> dict[str, Any]:
        refresh = secrets.token_urlsafe()
        self._refresh_tokens.add(refresh)
        now = self.claims()["iat"]
        return {
            "access_token": self.token(
                self.subject, exp=now + self.life_seconds, jti=secrets.token_hex()
            ),
            "refresh_token": refresh,
            "expires_in": self.life_seconds,
            "token_type": "Bearer",
        }


@contextmanager
def code_issuing() -> Iterator[CodeIssuer]:
    """Yield an issuer that answers while the block runs."""
    issuer = CodeIssuer()
    try:
        yield issuer
    finally:
        issuer.stop()
