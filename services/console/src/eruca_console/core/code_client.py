"""The console as a client of an issuer (OpenID Connect)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeClient:
    """The console as a client of an issuer.

    Attributes:
        issuer: The issuer's URL, exactly the claim iss.
        client_id: The name under which the issuer knows the console.
        secret_file: A file with the client's secret; None: it is a public client.
        scopes: Separated by blanks.
    """

    issuer: str
    client_id: str
    secret_file: str | None
    scopes: str
