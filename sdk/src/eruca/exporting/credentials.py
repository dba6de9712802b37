"""Credentials of the data source: a key from a file or the environment, and TLS files.

They have the same form, and the same environment variables, as the SDK's
(``eruca.aio.http.credentials``). Options name files, and never contain a secret, because Spark
shows options in plans and in its web interface. The files must exist on the driver and on each
executor; they are read there, and again when they change.

The module uses only the standard library, because Spark sends the source to every executor.
"""

from __future__ import annotations

import functools
import re
import ssl
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from ipaddress import ip_address
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from eruca.exporting.errors import OptionError

_SECRET: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,8192}")


@dataclass(frozen=True)
class CredentialFiles:
    """The files that options name; None: the environment's."""

    api_key: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


class Credentials(Protocol):
    """The identity behind the requests to a server."""

    def headers(self, url: str) -> Mapping[str, str]:
        """Return the headers to add to one request to the server at *url*."""
        ...

    def renew(self, refused: Mapping[str, str]) -> bool:
        """Return, after an answer 401, whether other headers than the refused ones are there."""
        ...

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the context of an ``https://`` connection; None: Python's default."""
        ...


class Anonymous:
    """No credentials: requests are anonymous, but for the certificate of their TLS context."""

    def __init__(self, files: CredentialFiles = CredentialFiles()) -> None:
        self._files = files

    def headers(self, url: str) -> Mapping[str, str]:
        """Return none."""
        return {}

    def renew(self, refused: Mapping[str, str]) -> bool:
        """Return False."""
        return False

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the context of the files; None: trust the system's certificate authorities."""
        files = self._files
        if files.ca is None and files.cert is None:
            return None
        try:
            context = ssl.create_default_context(cafile=files.ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if files.cert is not None:
                context.load_cert_chain(files.cert, files.key, password=_no_passphrase)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            named = ", ".join(name for name in (files.ca, files.cert, files.key) if name)
            raise OptionError(f"the TLS files {named} cannot be used: {error}") from error
        return context


class Bearer(Anonymous):
    """An API key or token, sent as ``Authorization: Bearer``.

    Args:
        secret: Returns the present one; called for each request.
        is_fixed: Whether it never changes.
        files: For TLS.
    """

    def __init__(
        self, secret: Callable[[], str], files: CredentialFiles, *, is_fixed: bool
    ) -> None:
        super().__init__(files)
        self._secret = secret
        self._is_fixed = is_fixed

    def headers(self, url: str) -> Mapping[str, str]:
        """Return the header of the present key."""
        _warn_if_exposed(url)
        return {"authorization": f"Bearer {self._secret()}"}

    def renew(self, refused: Mapping[str, str]) -> bool:
        """Return whether the key has changed since it was refused."""
        if self._is_fixed:
            return False
        if isinstance(self._secret, _Provided):
            self._secret.forget()
        return refused != {"authorization": f"Bearer {self._secret()}"}


class _Provided:
    """Tokens of the function that ``ERUCA_TOKEN_PROVIDER`` names: kept until one is refused."""

    def __init__(self, name: str) -> None:
        module, _, function = name.partition(":")
        try:
            self._provider = getattr(import_module(module), function)
        except (ImportError, AttributeError, ValueError) as error:
            raise OptionError(f"ERUCA_TOKEN_PROVIDER: {name!r} is no function: {error}") from error
        self._token: str | None = None

    def __call__(self) -> str:
        if self._token is None:
            given: Any = self._provider()
            text = getattr(given, "text", given)  # a Token of the SDK, or a text
            self._token = _checked(text, "ERUCA_TOKEN_PROVIDER")
        return self._token

    def forget(self) -> None:
        """Have the next request call the function."""
        self._token = None


def credentials_of(
    environment: Mapping[str, str], files: CredentialFiles | None = None
) -> Credentials:
    """Return the credentials of a process, the driver's or an executor's.

    Args:
        environment: The process's environment, for all that options do not name.
        files: The files that options name.

    Raises:
        OptionError: There is more than one key, or it is invalid.
    """
    given = files or CredentialFiles()
    tls = CredentialFiles(
        ca=given.ca or environment.get("ERUCA_TLS_CA_FILE") or None,
        cert=given.cert or environment.get("ERUCA_TLS_CERT_FILE") or None,
        key=given.key or environment.get("ERUCA_TLS_KEY_FILE") or None,
    )
    if given.api_key is not None:
        return Bearer(functools.partial(_read, given.api_key), tls, is_fixed=False)
    names = [
        name
        for name in ("ERUCA_API_KEY", "ERUCA_API_KEY_FILE", "ERUCA_TOKEN_PROVIDER")
        if environment.get(name)
    ]
    if len(names) > 1:
        raise OptionError(f"expected credentials from one variable, found {' and '.join(names)}")
    if not names:
        return Anonymous(tls)
    value = environment[names[0]]
    if names[0] == "ERUCA_API_KEY_FILE":
        return Bearer(functools.partial(_read, value), tls, is_fixed=False)
    if names[0] == "ERUCA_TOKEN_PROVIDER":
        return Bearer(_Provided(value), tls, is_fixed=False)
    secret = _checked(value.strip(), names[0])
    return Bearer(lambda: secret, tls, is_fixed=True)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 - as all of this package does
            return _checked(file.read().strip(), path)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it has characters that no key has"
        raise OptionError(f"the key's file {path} cannot be read: {why}") from None


def _checked(text: object, source: str) -> str:
    """Return a secret; the error names its source and never quotes it."""
    if not isinstance(text, str) or not _SECRET.fullmatch(text):
        raise OptionError(
            f"{source}: expected 1 to 8192 letters, digits or . _ ~ + / = - (contents not shown)"
        )
    return text


def _no_passphrase() -> str:
    raise ValueError("the private key is encrypted; store it without a passphrase")


def _warn_if_exposed(url: str) -> None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        is_here = ip_address(host).is_loopback
    except ValueError:
        is_here = host == "localhost"
    if parts.scheme == "http" and not is_here:
        # Python shows it once. Spark sends the source by value, which no cached function survives.
        warnings.warn(
            "credentials are sent over plain HTTP: who can read the network can use them; use "
            "https://",
            stacklevel=2,
        )
