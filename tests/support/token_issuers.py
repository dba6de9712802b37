"""A token issuer (OpenID Connect) of a test: an HTTP server with its keys, and tokens it signs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

AUDIENCE: Final = "eruca"
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


class SigningPair:
    """A private key, and its public half as an issuer publishes it."""

    def __init__(self, kid: str, algorithm: str = "ES256") -> None:
        self.kid = kid
        self.algorithm = algorithm
        self.private: PrivateKey
        if algorithm.startswith("ES"):
            self.private = ec.generate_private_key(ec.SECP256R1())
        elif algorithm.startswith("Ed"):
            self.private = ed25519.Ed25519PrivateKey.generate()
        else:
            self.private = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @property
    def public(self) -> dict[str, Any]:
        maker: Any = get_default_algorithms()[self.algorithm]
        members: dict[str, Any] = json.loads(maker.to_jwk(self.private.public_key()))
        return {**members, "kid": self.kid, "use": "sig", "alg": self.algorithm}


class TokenIssuer:
    """An issuer at an address of this machine; its keys, answers and presence may change."""

    def __init__(self) -> None:
        self.pairs = [SigningPair("first")]
        self.fetches: list[str] = []  # paths, in the order in which they were asked for
        self.answers: dict[str, bytes] = {}  # instead of its own, by path
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/realms/eruca"

    @property
    def jwks_count(self) -> int:
        """The number of times for which its keys were fetched."""
        return self.fetches.count("/realms/eruca/keys")

    def start(self) -> None:
        """Answer requests, at the same address as before."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                issuer.fetches.append(self.path)
                if (location := issuer.location(self.path)) is not None:
                    self.send_response(302)
                    self.send_header("location", location)
                    self.send_header("content-length", "0")
                    self.end_headers()
                    return
                body = issuer.answers.get(self.path) or issuer.answer(self.path)
                self.send_response(200 if body else 404)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                issuer.fetches.append(self.path)
                form = self.rfile.read(int(self.headers["content-length"])).decode()
                status, body = issuer.posted(self.path, form)
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Answer nobody."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def location(self, path: str) -> str | None:
        """Return where a path leads a browser; None: it leads nowhere."""
        return None

    def posted(self, path: str, form: str) -> tuple[int, bytes]:
        """Return the answer to a form."""
        return 404, b"{}"

    def answer(self, path: str) -> bytes:
        match path:
            case "/realms/eruca/.well-known/openid-configuration":
                found: object = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
            case "/realms/eruca/keys":
                found = {"keys": [pair.public for pair in self.pairs]}
            case _:
                return b""
        return json.dumps(found).encode()

    def claims(self, subject: str = "ann", **others: object) -> dict[str, Any]:
        """Return the claims of a valid token; None among *others* leaves a claim out."""
        now = int(time.time())
        claims = {"iss": self.url, "aud": AUDIENCE, "sub": subject, "iat": now, "exp": now + 300}
        return {name: value for name, value in (claims | others).items() if value is not None}

    def token(self, subject: str = "ann", **others: object) -> str:
        """Return a token that the first key signs."""
        return self.signed(self.claims(subject, **others))

    def signed(
        self,
        claims: Mapping[str, object],
        pair: SigningPair | None = None,
        **headers: object,
    ) -> str:
        """Return a token with exactly these claims."""
        pair = pair or self.pairs[0]
        head = {"kid": pair.kid, **headers}
        head = {name: value for name, value in head.items() if value is not None}
        payload = json.dumps(dict(claims)).encode()  # any claims, also those that no issuer makes
        return jwt.PyJWS().encode(payload, pair.private, algorithm=pair.algorithm, headers=head)

    def lines(self, name: str = "corp", **others: object) -> str:
        """Return its table in a file of rules."""
        members = {"name": name, "issuer": self.url, "audience": AUDIENCE, **others}
        said = [f"{key} = {_toml(value)}" for key, value in members.items()]
        return "\n".join(["[[issuers]]", *said, ""])


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)


@contextmanager
def issuing() -> Iterator[TokenIssuer]:
    """Yield an issuer that answers while the block runs."""
    issuer = TokenIssuer()
    try:
        yield issuer
    finally:
        issuer.stop()
