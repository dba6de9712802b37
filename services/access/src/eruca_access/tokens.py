"""Bearer tokens of issuers (OpenID Connect): from a token to its holder.

A token is verified once, and its holder cached by the token's SHA-256 until it expires. So a token
costs one hash afterwards. Nothing here waits: keys come from :mod:`.issuer_keys`.

A token is refused with the same text as a wrong API key until its signature is verified. After
that the answer says what is wrong, because the issuer vouches that the token is the caller's.

Source: RFC 7519 (JSON Web Token); RFC 8725 (its Best Current Practices); RFC 9068 section 4.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eruca.contract.access import NAME_SIZE_MAX, ROLE_PREFIX
from eruca.contract.errors import NotReadyError, UnauthenticatedError
from eruca.contract.issuers import TokenIssuer
from eruca_access.issuer_keys import ALGORITHMS, IssuerKeys

if TYPE_CHECKING:
    import jwt

LEEWAY_SECONDS: Final = 5.0  # by which an issuer's clock may differ
TOKEN_SIZE_MAX: Final = 8_192  # characters
CACHED_MAX: Final = 10_000  # verified tokens
INVALID: Final = "the credentials are not valid here"
_REQUIRED: Final = ("iss", "aud", "exp")
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_SUBJECT: Final = re.compile(r"[!-~]+\Z")


class TokenHolder(NamedTuple):
    """A caller: the principal of a valid token, and the roles that its claims give it."""

    name: str
    roles: tuple[str, ...]

    @property
    def credential(self) -> str:
        """The name of its credential, for records."""
        return "token"


class Tokens:
    """Verifies tokens of the issuers in the rules.

    Args:
        issuers: The issuers.
    """

    def __init__(self, issuers: Sequence[TokenIssuer] = ()) -> None:
        self._issuers: dict[str, IssuerKeys] = {}  # by their claim iss
        self._verified: dict[bytes, tuple[TokenHolder, float]] = {}
        self.follow(issuers)

    def follow(self, issuers: Sequence[TokenIssuer]) -> None:
        """Accept tokens of these issuers from now on; keep the keys of those that were known."""
        before = self._issuers
        self._issuers = {
            issuer.issuer: known
            if (known := before.get(issuer.issuer)) is not None and known.issuer == issuer
            else IssuerKeys(issuer)
            for issuer in issuers
        }
        if self._issuers != before:
            self._verified.clear()

    @property
    def faults(self) -> Mapping[str, str | None]:
        """The reason why an issuer's keys could not be fetched the last time, by its name."""
        return {keys.name: keys.fault for keys in self._issuers.values()}

    async def fetch(self) -> bool:
        """Fetch the keys that are due; return whether a key is not valid any more."""
        now = time.monotonic()
        due = [keys for keys in self._issuers.values() if keys.is_due(now)]
        if not due:
            return False
        # Here, because most services have no issuer, and need no client.
        from eruca.services.http import ANONYMOUS, httpx_client

        is_changed = False
        async with httpx_client(ANONYMOUS) as client:  # an issuer must not receive our credentials
            for keys in due:
                is_changed |= await keys.fetch(client, time.monotonic())
        if is_changed:
            self._verified.clear()
        return is_changed

    def holder_of(self, token: str) -> tuple[TokenHolder, float]:
        """Return the holder of *token*, and the monotonic time until which it is valid.

        Raises:
            UnauthenticatedError: The token is not valid here.
            NotReadyError: The keys of its issuer are not known yet.
        """
        if not self._issuers or len(token) > TOKEN_SIZE_MAX:
            raise UnauthenticatedError(INVALID)
        digest = hashlib.sha256(token.encode()).digest()
        verified = self._verified.get(digest)
        if verified is not None and time.monotonic() < verified[1]:
            return verified
        verified = self._verify(token)
        self._verified.pop(digest, None)
        if len(self._verified) >= CACHED_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = verified
        return verified

    def _verify(self, token: str) -> tuple[TokenHolder, float]:
        import jwt  # here, as in all functions of this module: most services have no issuer

        keys, key = self._key_of(token)
        issuer = keys.issuer
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=issuer.audience,
                issuer=issuer.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": list(_REQUIRED), "verify_iat": False},
            )
        except jwt.InvalidTokenError as error:
            refusal = _refusal(error, issuer)
            fix = None if refusal == INVALID else _another_token(issuer)
            raise UnauthenticatedError(refusal, fix=fix) from None
        holder = TokenHolder(_principal(claims, issuer), _roles(claims, issuer))
        left_seconds = float(claims["exp"]) + LEEWAY_SECONDS - time.time()
        return holder, time.monotonic() + left_seconds

    def _key_of(self, token: str) -> tuple[IssuerKeys, jwt.PyJWK]:
        """Return the issuer that a token names, and its key; nothing of it is proved yet."""
        import jwt

        try:
            said = jwt.decode_complete(token, options={"verify_signature": False})
        except jwt.InvalidTokenError:
            raise UnauthenticatedError(INVALID) from None
        head, issuer = said["header"], said["payload"].get("iss")
        keys = self._issuers.get(issuer) if isinstance(issuer, str) else None
        is_plain = (
            head.get("alg") in ALGORITHMS
            and not {"crit", "b64"} & head.keys()
            and str(head.get("typ", "JWT")).lower() in _TYPES
        )
        if keys is None or not is_plain:
            raise UnauthenticatedError(INVALID)
        if not keys.keys:
            # A refusal would be a lie: the token may be valid, and its holder would give up.
            raise NotReadyError(
                "the keys of the token's issuer are not known yet",
                fix="wait a moment, then retry; if it remains so, this service does not reach the"
                " issuer, and its log says why",
                retry_after_seconds=keys.ask(time.monotonic()),
            )
        kid = head.get("kid")
        if kid is None and len(keys.keys) == 1:
            [found] = keys.keys.values()
            return keys, found.key
        known = keys.keys.get("" if kid is None else kid)
        if known is None:
            raise UnauthenticatedError(
                INVALID, retry_after_seconds=keys.ask(time.monotonic())
            ) from None
        return keys, known.key


def _refusal(error: jwt.InvalidTokenError, issuer: TokenIssuer) -> str:
    """Return what a token's holder may know about its refusal."""
    import jwt

    match error:
        case jwt.ExpiredSignatureError():
            return "the token has expired"
        case jwt.ImmatureSignatureError():
            return "the token is not valid yet"
        case jwt.InvalidAudienceError():
            return f"the token is not for the audience {issuer.audience!r}"
        case jwt.MissingRequiredClaimError():
            return f"the token has no claim {error.claim}"
        case _:
            return INVALID


def _another_token(issuer: TokenIssuer) -> str:
    return f"get another token of the issuer {issuer.name}, for the audience {issuer.audience!r}"


def _principal(claims: Mapping[str, Any], issuer: TokenIssuer) -> str:
    """Return the principal of verified claims.

    Raises:
        UnauthenticatedError: They name none.
    """
    subject = claims.get(issuer.subject_claim)
    if not isinstance(subject, str) or not _SUBJECT.match(subject):
        raise UnauthenticatedError(
            f"the token's claim {issuer.subject_claim} is no name of visible ASCII characters",
            fix=_another_token(issuer),
        )
    name = f"oidc:{issuer.name}/{subject}"
    if len(name) > NAME_SIZE_MAX:
        raise UnauthenticatedError(
            f"the token's claim {issuer.subject_claim} makes a name of more than {NAME_SIZE_MAX} "
            "characters",
            fix=_another_token(issuer),
        )
    return name


def _roles(claims: Mapping[str, Any], issuer: TokenIssuer) -> tuple[str, ...]:
    """Return the roles that verified claims give their holder."""
    found: Any = claims
    for name in issuer.roles_claim:
        found = found.get(name) if isinstance(found, Mapping) else None
    values = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    roles = {
        issuer.roles[value] for value in values if isinstance(value, str) and value in issuer.roles
    }
    return tuple(ROLE_PREFIX + role for role in sorted(roles))
