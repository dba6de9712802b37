"""Issuers of bearer tokens (OpenID Connect), as a file of rules names them.

A token proves its holder to every service that knows its issuer: by a signature, and by claims that
the issuer vouches for. The principal is ``oidc:NAME/SUBJECT``. NAME is the issuer's short name
here, which has no slash, so no two issuers can mean the same principal.

Source: RFC 7519 (JSON Web Token); OpenID Connect Core 1.0, section 2; OpenID Connect Discovery 1.0.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

ISSUER_COUNT_MAX: Final = 16
URL_SIZE_MAX: Final = 512  # characters
CLAIM_SIZE_MAX: Final = 255  # characters
_ROLE_NAME: Final = r"^[A-Za-z0-9_.-]{1,64}$"


def checked_issuer_url(text: str) -> str:
    """Return *text* if keys may be fetched there: nobody can change them on the way.

    Raises:
        ValueError: It is no https:// URL, nor an http:// URL of this machine.
    """
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    is_allowed = host and (
        parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))
    )
    if not is_allowed or parts.fragment or parts.username is not None:
        raise ValueError(
            "expected https://HOST/PATH, or http:// with an address of this machine, found "
            f"{text!r}"
        )
    return text


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


IssuerUrl = Annotated[
    str,
    StringConstraints(max_length=URL_SIZE_MAX, pattern=r"^[!-~]+$"),
    AfterValidator(checked_issuer_url),
]
Claim = Annotated[str, StringConstraints(min_length=1, max_length=CLAIM_SIZE_MAX)]


class TokenIssuer(BaseModel):
    """An issuer whose tokens are accepted, and the meaning of their claims."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[
        str,
        StringConstraints(pattern=_ROLE_NAME),
        Field(description="its short name; principals are oidc:NAME/SUBJECT"),
    ]
    issuer: Annotated[IssuerUrl, Field(description="its URL: exactly the tokens' claim iss")]
    audience: Annotated[
        Claim, Field(description="the tokens' claim aud has this value: they are meant for Eruca")
    ]
    jwks_uri: Annotated[
        IssuerUrl | None,
        Field(description="URL of its keys; default: the one that its discovery document names"),
    ] = None
    subject_claim: Annotated[
        Claim, Field(description="the claim that names the principal; never used again for others")
    ] = "sub"
    roles_claim: Annotated[
        list[Claim],
        Field(
            max_length=8,
            description="the claim with the holder's groups: the names on the way to it",
        ),
    ] = []
    roles: Annotated[
        dict[Claim, Annotated[str, StringConstraints(pattern=_ROLE_NAME)]],
        Field(description="the role for each value of roles_claim; other values mean nothing"),
    ] = {}
