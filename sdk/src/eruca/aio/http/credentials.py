"""Credentials: the identity behind a request, and the TLS context of its connection.

Every request of the SDK, the command line and the services is made with credentials
(:mod:`eruca.aio.http.clients`). :class:`eruca.aio.http.authorized.AuthorizedTransport` adds their
headers. The transports below it use them for the TLS context alone.

The rule is: **credentials go to the cluster's own servers, and to nobody else.** Those are the
servers that the program names, and those that its name servers name: brokers and their replicas,
query services, checkers, controllers. The program trusts its name servers with that, because it
would send its messages there as well.

- A webhook and an etcd are other people's servers. They are called as :data:`ANONYMOUS`.
- A redirect (307 ``not-master``) is a server's word about another server. A client with credentials
  follows it only to a replica that a route names for the same broker
  (:mod:`eruca.core.routing.master_book`). Otherwise one broker, or another program that took
  over its address, could lead the client's key to any host, or over plain HTTP. A new replica costs
  such a client a fetch of the route.
- httpx follows no redirect here, and no ``Location`` is ever used.

Over plain HTTP to another machine everybody on the way can read the key. That is allowed, because
proxies and meshes encrypt outside of the process, and a warning says it once.

Spark does not use this module and has the same interface of its own (``eruca.exporting.service``).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from eruca.aio.http.file_changes import MISSING, Look, look_at
from eruca.aio.http.tls_contexts import TlsContexts
from eruca.contract.errors import NoCredentialsError, ValidationError
from eruca.core.credentials import (
    ApiKey,
    ApiKeyFile,
    BearerTokens,
    NamedProvider,
    TlsFiles,
    Token,
    checked_secret,
    given_credentials,
    is_exposed,
    refresh_after_seconds,
)
from eruca.core.credentials import Credentials as GivenCredentials

if TYPE_CHECKING:
    from eruca.core.credentials import TokenProvider

Headers = Sequence[tuple[str, str]]

LOOK_SECONDS: Final = 1.0  # between two looks at a key's file
# After a failed refresh, and between two refreshes because of answers 401: a service that refuses
# every token must not make each client request one after the other.
REFRESH_PAUSE_SECONDS: Final = 5.0
PAUSE_SECONDS_MAX: Final = 5.0  # that a service may ask for with a refusal
_SCHEMES: Final = ("http://", "https://")

_logger = logging.getLogger(__name__)


class Credentials(Protocol):
    """The identity behind the requests to a server.

    Attributes:
        has_headers: Whether :meth:`headers` can return any; constant. Requests without credentials
            cost nothing, because nothing asks for their headers.
    """

    @property
    def has_headers(self) -> bool:
        """True if requests carry headers of these credentials."""
        ...

    async def headers(self, url: str) -> Headers:
        """Return the headers to add to one request.

        Args:
            url: The server's URL: scheme, host and port.

        Raises:
            ErucaError: No valid credentials are available now. The request is not sent.
        """
        ...

    async def renew(self, refused: Headers) -> bool:
        """Fetch new credentials after an answer 401.

        Args:
            refused: The headers that the server refused.

        Returns:
            Whether :meth:`headers` returns others now, so that one more request makes sense.
        """
        ...

    async def ssl_context(self) -> ssl.SSLContext:
        """Return the context of a new ``https://`` connection: authorities, client certificate."""
        ...


class Anonymous:
    """No credentials: requests are anonymous, but for the certificate of their TLS context.

    Args:
        ssl_context: For ``https://`` URLs; None: the one of *tls_files*.
        tls_files: Files for ``https://`` URLs; None: trust the system's certificate authorities.
    """

    has_headers: Final[bool] = False

    def __init__(
        self, ssl_context: ssl.SSLContext | None = None, *, tls_files: TlsFiles | None = None
    ) -> None:
        self._ssl_context = ssl_context
        self._contexts = TlsContexts(tls_files or TlsFiles())

    async def headers(self, url: str) -> Headers:
        """Return none."""
        return ()

    async def renew(self, refused: Headers) -> bool:
        """Return False."""
        return False

    async def ssl_context(self) -> ssl.SSLContext:
        """Return the given context, else that of the files, else the process's."""
        return self._ssl_context or await self._contexts.current()


ANONYMOUS: Final = Anonymous()
"""For other servers than Eruca's, such as webhooks: they must not receive our credentials."""


class _Bearer:
    """The common part of all credentials that are sent as ``Authorization: Bearer``."""

    has_headers: Final = True

    def __init__(self, tls: Anonymous) -> None:
        self._tls = tls

    async def ssl_context(self) -> ssl.SSLContext:
        """Return the context of a new ``https://`` connection."""
        return await self._tls.ssl_context()

    @staticmethod
    def _headers_of(secret: str) -> Headers:
        return (("authorization", f"Bearer {secret}"),)


class KeyCredentials(_Bearer):
    """An API key that never changes."""

    def __init__(self, key: ApiKey, tls: Anonymous) -> None:
        super().__init__(tls)
        self._headers = self._headers_of(key.text)

    async def headers(self, url: str) -> Headers:
        """Return the key's header."""
        warn_if_exposed(url)
        return self._headers

    async def renew(self, refused: Headers) -> bool:
        """Return False: there is no other key."""
        return False


class KeyFileCredentials(_Bearer):
    """An API key in a file, which is read again when the file has changed."""

    def __init__(self, file: ApiKeyFile, tls: Anonymous) -> None:
        super().__init__(tls)
        self._path = Path(file.path)
        self._headers: Headers | None = None
        self._look: Look = MISSING
        self._look_at = 0.0  # by the monotonic clock: when to look at the file again

    async def headers(self, url: str) -> Headers:
        """Return the header of the file's present key.

        Raises:
            NoCredentialsError: The file has no key, and never had one.
        """
        warn_if_exposed(url)
        now = time.monotonic()
        if self._headers is None or now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            if self._headers is None or look_at(self._path) != self._look:
                self._read()
        assert self._headers is not None, "reading the file succeeds or raises"
        return self._headers

    async def renew(self, refused: Headers) -> bool:
        """Read the file now; return whether its key differs from the refused one."""
        self._read()
        return self._headers != refused

    def _read(self) -> None:
        # The look before the content: a change between the two is found by the next look.
        look = look_at(self._path)
        try:
            secret = checked_secret(self._path.read_text(encoding="ascii").strip(), str(self._path))
        except (OSError, UnicodeDecodeError, ValidationError) as error:
            why = _why_unreadable(error, self._path)
            if self._headers is None:
                raise NoCredentialsError(why, fix="write the key into the file") from None
            if look != self._look:  # once for each change
                _logger.warning("%s; the former key stays in use", why)
        else:
            self._headers = self._headers_of(secret)
        self._look = look


class TokenCredentials(_Bearer):
    """Tokens of a provider: fetched before the present one expires, by one call at a time.

    A consumer's second thread (``eruca.aio.push.standby``) uses the same object on an event loop of
    its own. It shares the present token. An async provider belongs to the client's loop, so it is
    called there only.
    """

    def __init__(self, provider: TokenProvider, tls: Anonymous) -> None:
        super().__init__(tls)
        self._provider = provider
        self._lock = threading.Lock()  # around the five attributes below; never held while waiting
        self._headers: Headers | None = None
        self._refresh_at = float("inf")  # by the monotonic clock, like the others
        self._expires_at = float("inf")
        self._renewable_at = 0.0
        self._failed: NoCredentialsError | None = None
        self._owner: asyncio.AbstractEventLoop | None = None
        self._fetches: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}

    async def headers(self, url: str) -> Headers:
        """Return the header of a token that is valid now.

        Raises:
            NoCredentialsError: The provider failed, and the last token has expired.
        """
        warn_if_exposed(url)
        now = time.monotonic()
        headers = self._headers
        if headers is not None and now < self._refresh_at:
            return headers
        if headers is not None and now < self._expires_at:
            self._fetch()  # others go on with the present token meanwhile
            return headers
        await asyncio.shield(self._fetch())
        with self._lock:
            if self._headers is None or time.monotonic() >= self._expires_at:
                raise self._failed or NoCredentialsError("the token had expired when it came")
            return self._headers

    async def renew(self, refused: Headers) -> bool:
        """Fetch another token, unless that was done because of a 401 just now."""
        with self._lock:
            if self._headers != refused:
                return True  # another request has renewed it
            now = time.monotonic()
            if now < self._renewable_at:
                return False
            self._renewable_at = now + REFRESH_PAUSE_SECONDS
        await asyncio.shield(self._fetch())
        return self._failed is None and self._headers != refused

    def _fetch(self) -> asyncio.Task[None]:
        """Return the fetch under way on this event loop, or begin one."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._owner is None:
                self._owner = loop
            self._fetches = {at: task for at, task in self._fetches.items() if not task.done()}
            fetch = self._fetches.get(loop)
            if fetch is None:
                fetch = loop.create_task(self._renewed(), name="eruca token")
                self._fetches[loop] = fetch
            return fetch

    async def _renewed(self) -> None:
        """Call the provider; a failure is kept for those who need the token."""
        began_at = time.monotonic()
        try:
            token = await self._provided()
        except Exception as error:  # whatever the program's function raises
            self._fail(error)
            return
        seconds = token.expires_in_seconds
        with self._lock:
            self._failed = None
            self._headers = self._headers_of(token.text)
            self._expires_at = self._refresh_at = float("inf")
            if seconds is not None:
                self._expires_at = began_at + seconds
                self._refresh_at = began_at + refresh_after_seconds(seconds)

    async def _provided(self) -> Token:
        if inspect.iscoroutinefunction(self._provider):
            if asyncio.get_running_loop() is not self._owner:
                raise NoCredentialsError("an async provider is called on the client's loop alone")
            given = await self._provider()
        else:
            given = await asyncio.to_thread(self._provider)
            if inspect.isawaitable(given):  # an object whose call is async
                given = await given
        return Token(given) if isinstance(given, str) else _checked_token(given)

    def _fail(self, error: Exception) -> None:
        # The error's text may contain what the provider sent to its issuer: only the type is shown.
        detail = f"the token provider failed: {type(error).__name__}"
        if isinstance(error, NoCredentialsError | ValidationError):
            detail = f"the token provider failed: {error.detail}"
        failed = NoCredentialsError(
            detail, fix="see the provider's own log; the issuer may be away"
        )
        failed.__cause__ = error
        with self._lock:
            self._failed = failed
            now = time.monotonic()
            if self._headers is not None and now < self._expires_at:
                self._refresh_at = now + REFRESH_PAUSE_SECONDS
                _logger.warning("%s; the present token stays in use until it expires", detail)


def credentials_of(
    environment: Mapping[str, str],
    *,
    given: GivenCredentials | None = None,
    tls_files: TlsFiles | None = None,
    ssl_context: ssl.SSLContext | None = None,
) -> Credentials:
    """Return the credentials of a process for Eruca's services.

    Args:
        environment: The process's environment, for all that is not given.
        given: The program's own credentials.
        tls_files: Files for ``https://`` URLs, if the program names them.
        ssl_context: For ``https://`` URLs, if the program has one.

    Raises:
        ValidationError: A value is invalid; the error names its source, and no secret.
    """
    if given is not None and not isinstance(given, ApiKey | ApiKeyFile | BearerTokens):
        # not its value: a program may have passed the key itself
        raise ValidationError(
            f"credentials: expected an ApiKey, ApiKeyFile or BearerTokens, found a value of type "
            f"{type(given).__name__}",
            fix="write credentials=eruca.ApiKey(…)",
        )
    if tls_files is not None and not isinstance(tls_files, TlsFiles):
        raise ValidationError(
            f"tls_files: expected TlsFiles, found a value of type {type(tls_files).__name__}",
            fix="write tls_files=eruca.TlsFiles(ca_file=…)",
        )
    if ssl_context is not None and tls_files is not None:
        raise ValidationError(
            "ssl_context and tls_files are both given", fix="give the one or the other"
        )
    if ssl_context is None and tls_files is None:
        tls_files = TlsFiles.of(environment)
    tls = Anonymous(ssl_context, tls_files=tls_files)
    source = given or given_credentials(environment)
    if source is None:
        return tls
    if isinstance(source, ApiKey):
        return KeyCredentials(source, tls)
    if isinstance(source, ApiKeyFile):
        return KeyFileCredentials(source, tls)
    if isinstance(source, NamedProvider):
        source = BearerTokens(_provider_named(source.name))
    return TokenCredentials(source.provider, tls)


def pause_of(retry_after: str | None) -> float | None:
    """Return the seconds after which a request that was refused with 401 is sent once more.

    None: the service names no pause, or a long one, which is no matter of a single request.
    """
    if retry_after is None or not retry_after.isdecimal():
        return None
    seconds = float(retry_after)
    return seconds if seconds <= PAUSE_SECONDS_MAX else None


def warn_if_exposed(url: str) -> None:
    """Warn, once in a process, that credentials are sent where a network can read them."""
    if not url.startswith(_SCHEMES[1]) and is_exposed(url):
        _warn_once(url)


def _warn_once(url: str) -> None:
    if _has_warned.cache_info().currsize == 0:
        _has_warned()
        _logger.warning(
            "credentials are sent to %s over plain HTTP: who can read the network can use them; "
            "use https://",
            url,
        )


@functools.cache
def _has_warned() -> None:
    """Remember the warning; a cache, so that tests can clear it."""


def _provider_named(name: str) -> TokenProvider:
    """Return the function that ``ERUCA_TOKEN_PROVIDER`` names."""
    module, _, function = name.partition(":")
    try:
        provider: TokenProvider = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValidationError(
            f"ERUCA_TOKEN_PROVIDER: {name!r} is not a function: {error}",
            fix="write package.module:function; the module must be importable (PYTHONPATH)",
        ) from error
    return provider


def _checked_token(given: object) -> Token:
    if not isinstance(given, Token):
        raise ValidationError(f"expected a Token or a text, found {type(given).__name__}")
    return given


def _why_unreadable(error: Exception, path: Path) -> str:
    if isinstance(error, ValidationError):
        return error.detail
    why = error.strerror if isinstance(error, OSError) else "it has characters that no key has"
    return f"the key's file {path} cannot be read: {why}"
