"""Credentials as a program gives them: an API key, a file with one, or a source of tokens.

====================  ==================================================================
ERUCA_API_KEY         an API key
ERUCA_API_KEY_FILE    a file with an API key or a bearer token; read again when it changes
ERUCA_TOKEN_PROVIDER  ``package.module:function``, a function that returns bearer tokens
ERUCA_TLS_CA_FILE     the certificate authorities to trust, instead of the system's
ERUCA_TLS_CERT_FILE   the client's certificate, with its chain
ERUCA_TLS_KEY_FILE    its private key; default: it is in the certificate's file
====================  ==================================================================

The values of this module say where a secret comes from. None of them shows it: not in its repr, not
in an error. :mod:`eruca.aio.http.credentials` reads files and calls providers.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, Protocol, TypeAlias, runtime_checkable
from urllib.parse import urlsplit

from eruca.contract.errors import ValidationError
from eruca.core.checked_arguments import check_argument
from eruca.core.checked_numbers import check_range

SECRET_SIZE_MAX: Final = 8_192  # characters; a service takes heads of 64 KiB, its servers less
# A token is replaced after this part of its life, but not earlier than this time before its end.
_REFRESH_SHARE: Final = 0.8
_REFRESH_SECONDS_MAX: Final = 60.0
_SECRET: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")  # RFC 6750: token68
_FORM: Final = "expected 1 to 8192 letters, digits or . _ ~ + / = - (contents not shown)"


@runtime_checkable
class PathLike(Protocol):
    """A path that is an object, such as :class:`pathlib.Path`."""

    def __fspath__(self) -> str:
        """Return the path as a text."""
        ...


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key.

    Args:
        text: The key, such as ``eruca_…``.

    Raises:
        ValidationError: It has characters that no key has.
    """

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        """Check the key."""
        checked_secret(self.text, "the API key")


@dataclass(frozen=True, slots=True)
class ApiKeyFile:
    """A file with an API key or a bearer token.

    It is read again when it changes, and after an answer 401, so a key is rotated without a
    restart. Blanks and line ends around the key are ignored.

    Args:
        path: The file.
    """

    path: str | PathLike

    def __post_init__(self) -> None:
        """Check the path."""
        check_argument("path", self.path, str | PathLike)


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token.

    Args:
        text: The token.
        expires_in_seconds: Its life from now on, as an OAuth 2.0 server answers (``expires_in``);
            None: unknown, so it is replaced after an answer 401.

    Raises:
        ValidationError: It has characters that no token has.
    """

    text: str = field(repr=False)
    expires_in_seconds: float | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        checked_secret(self.text, "the token")
        if self.expires_in_seconds is not None:
            check_range("expires_in_seconds", self.expires_in_seconds, 0)


TokenProvider: TypeAlias = Callable[[], Token | str | Awaitable[Token | str]]
"""Returns a new token; an async one runs on the client's event loop, any other in a thread."""


@dataclass(frozen=True, slots=True)
class BearerTokens:
    """Tokens of an identity provider, such as those of OIDC client credentials.

    The provider is called before the first request, before a token expires, and once after an
    answer 401. Requests go on with the present token while its successor is fetched.

    Args:
        provider: Returns a :class:`Token`, or a token's text; a function or an async function.
    """

    provider: TokenProvider = field(repr=False)

    def __post_init__(self) -> None:
        """Check the provider."""
        if not callable(self.provider):
            raise ValidationError(
                f"provider: expected a function, found {type(self.provider).__name__}",
                fix="give a function that returns a Token",
            )


@dataclass(frozen=True, slots=True)
class NamedProvider:
    """A function that returns tokens, by its name: ``package.module:function``."""

    name: str


Credentials: TypeAlias = ApiKey | ApiKeyFile | BearerTokens
"""Credentials that a program can give to a client."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files for ``https://`` connections; each is read again when it changes.

    Servers are always verified.

    Args:
        ca_file: The certificate authorities to trust, and only they; None: the system's.
        cert_file: The client's certificate, with its chain; None: it shows none.
        key_file: Its private key; None: it is in *cert_file*.

    Raises:
        ValidationError: There is a key without a certificate.
    """

    ca_file: str | PathLike | None = None
    cert_file: str | PathLike | None = None
    key_file: str | PathLike | None = None

    def __post_init__(self) -> None:
        """Check the paths."""
        for name in ("ca_file", "cert_file", "key_file"):
            check_argument(name, getattr(self, name), str | PathLike | None)
        if self.key_file is not None and self.cert_file is None:
            raise ValidationError(
                "a private key is given, and no certificate",
                fix="give cert_file (ERUCA_TLS_CERT_FILE), too",
            )

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> TlsFiles:
        """Return the files that the environment names."""
        return cls(
            ca_file=environment.get("ERUCA_TLS_CA_FILE") or None,
            cert_file=environment.get("ERUCA_TLS_CERT_FILE") or None,
            key_file=environment.get("ERUCA_TLS_KEY_FILE") or None,
        )


def given_credentials(
    environment: Mapping[str, str],
) -> ApiKey | ApiKeyFile | NamedProvider | None:
    """Return the credentials that the environment gives; None: none.

    Raises:
        ValidationError: It gives more than one, or a key that is none.
    """
    names = [
        name
        for name in ("ERUCA_API_KEY", "ERUCA_API_KEY_FILE", "ERUCA_TOKEN_PROVIDER")
        if environment.get(name)
    ]
    if len(names) > 1:
        raise ValidationError(
            f"expected credentials from one variable, found {' and '.join(names)}",
            fix="unset all but one of them",
        )
    if not names:
        return None
    value = environment[names[0]]
    if names[0] == "ERUCA_API_KEY":
        return ApiKey(checked_secret(value.strip(), names[0]))
    return ApiKeyFile(value) if names[0] == "ERUCA_API_KEY_FILE" else NamedProvider(value)


def checked_secret(text: str, source: str) -> str:
    """Return *text* if it can be a bearer token; the error names its *source* and never quotes it.

    Raises:
        ValidationError: It cannot be sent in a header.
    """
    if not isinstance(text, str) or len(text) > SECRET_SIZE_MAX or not _SECRET.fullmatch(text):
        raise ValidationError(f"{source}: {_FORM}", fix="give the key as it was shown once")
    return text


def refresh_after_seconds(expires_in_seconds: float) -> float:
    """Return when to replace a token that lives so long from now on."""
    return max(_REFRESH_SHARE * expires_in_seconds, expires_in_seconds - _REFRESH_SECONDS_MAX)


def is_exposed(url: str) -> bool:
    """Tell whether a request to the server at *url* can be read on a network."""
    parts = urlsplit(url)
    if parts.scheme != "http":
        return False
    host = parts.hostname or ""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"
