"""The transport interface: the SDK's requirements of HTTP.

:class:`eruca.aio.http.http1.Http1Transport` implements it, for every request of a client. A program
can replace it by an object with the same two methods, for example one that uses a proxy.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import quote, urlencode

import msgspec

from eruca.contract.errors import (
    PROBLEM_MEDIA_TYPE,
    ErucaError,
    TimeoutExpiredError,
    TransportError,
    ValidationError,
    error_of_problem,
)
from eruca.contract.records import Buffer

JSON_HEADER: Final = ("content-type", "application/json")
# The errors of decoding: msgspec lets invalid UTF-8 and unlimited nesting through.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
TLS_EXPECTED: Final = "the server speaks TLS: the URL should begin with https://, not http://"
# OpenSSL's words for an answer that is not TLS; they depend on the answer's first bytes.
_NO_TLS_SIGNS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_PERHAPS_HTTP: Final = "if the server speaks plain HTTP, write http:// instead of https://"
_PERHAPS_HTTPS: Final = "if the server expects TLS, write https:// instead of http://"
_TLS_ALERT: Final = b"\x15\x03"  # RFC 8446: content type alert, and the version's first byte
# A connection that is silent for 5 s is probed; it is closed after three probes, 2 s apart.
_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
_DETAIL_SIZE_MAX: Final = 200  # characters of a proxy's answer that an error quotes
_TELLING: Final = frozenset({413, 429})  # of a proxy's answers below 500: too large, too many
# Brokers ask for seconds. A proxy may ask for an hour, and a consumer would hold its queues for
# that hour without reading them.
RETRY_AFTER_SECONDS_MAX: Final = 30.0


class HttpResponse(msgspec.Struct, frozen=True):
    """A complete answer."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class NotConnectedError(TransportError):
    """No connection was made: nothing of the request has been sent."""

    code = TransportError.code


class PipeLostError(NotConnectedError):
    """The one connection of several requests was lost before, or leads elsewhere.

    Nothing of the request has been sent, and that says nothing about the server.
    """

    code = TransportError.code


class ConnectTimeoutError(TimeoutExpiredError):
    """No connection was made before the deadline: nothing of the request has been sent."""

    code = TimeoutExpiredError.code


def connection_fault(error: Exception, url: str) -> str:
    """Return why the connection to *url* failed; name the right scheme if it is known."""
    text = str(error)
    if any(sign in text for sign in _NO_TLS_SIGNS):
        return "the server does not speak TLS: the URL should begin with http://, not https://"
    if url.startswith("https:") and (not text or "EOF" in text or "reset" in text.lower()):
        return f"the connection was closed during the TLS handshake; {_PERHAPS_HTTP}"
    return getattr(error, "strerror", None) or text or type(error).__name__


def late_connection(url: str) -> str:
    """Return a hint for the error of a connection that was not made in time."""
    return f"; {_PERHAPS_HTTP}" if url.startswith("https:") else ""


def perhaps_tls(url: str) -> str:
    """Return a hint for the error of a new connection that ended without a byte."""
    return "" if url.startswith("https:") else f"; {_PERHAPS_HTTPS}"


def is_tls_alert(data: bytes) -> bool:
    """Tell whether *data*, instead of an HTTP answer, is a TLS alert."""
    return data.startswith(_TLS_ALERT)


class HttpTransport(Protocol):
    """Sends one request and returns its answer, whatever its status.

    Without an answer, ``request`` raises TransportError or TimeoutExpiredError. If it is certain
    that nothing has been sent, it raises one of this module's errors. Cancelling it closes the
    connection. *url* is scheme, host and port; *target* begins with ``/``.
    """

    async def request(
        self,
        method: str,
        url: str,
        target: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: Sequence[Buffer] = (),
        timeout: float,
    ) -> HttpResponse:
        """Return the answer, within *timeout* seconds."""
        ...

    async def close(self) -> None:
        """Close every connection; requests under way fail."""
        ...


def pipe_of(transport: HttpTransport) -> HttpTransport | None:
    """Return a transport whose requests share one connection of their own, each sent at once.

    Answers come in the order of requests. Closing it closes that connection. None: *transport* has
    no such connections, or no more of them now.
    """
    make: Callable[[], HttpTransport | None] | None = getattr(transport, "pipe", None)
    return None if make is None else make()


def leads_to(pipe: HttpTransport, url: str) -> bool:
    """Tell whether the one connection of *pipe* can be used for requests to *url*.

    A connection that was never used can. False, too, if *pipe* does not know.
    """
    ask: Callable[[str], bool] | None = getattr(pipe, "leads_to", None)
    return ask is not None and ask(url)


def keep_alive_options() -> list[tuple[int, int, int]]:
    """Return socket options that detect a dead connection while an answer is awaited.

    A held request sends nothing for half a minute. Without these options, lost packets or a
    restarted server would go unnoticed meanwhile.
    """
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in _KEEP_ALIVE.items():
        if (option := getattr(socket, name, None)) is not None:  # the names depend on the system
            options.append((socket.IPPROTO_TCP, option, value))
    return options


def problem_error(response: HttpResponse, what: str) -> ErucaError:
    """Return the error for an answer with status 300 or more; quote it if it is not Eruca's.

    Such an answer comes from a proxy, or from a server that reuses a former broker's address. It
    does not speak for the broker, so its error is retryable, except for a request that is too
    large.
    """
    retry_after = _seconds(response.headers.get("retry-after"))
    media_type = response.headers.get("content-type", "").partition(";")[0].strip()
    if media_type == PROBLEM_MEDIA_TYPE:
        try:
            document = msgspec.json.decode(response.body, type=dict)
        except UNREADABLE:
            document = None
        if document is not None:
            return error_of_problem(document, response.status, retry_after_seconds=retry_after)
    text = response.body[: 4 * _DETAIL_SIZE_MAX].decode(errors="replace")[:_DETAIL_SIZE_MAX].strip()
    detail = f"{what}: HTTP status {response.status} without a problem document: {text or 'empty'}"
    request_id = response.headers.get("x-request-id")
    if response.status < 500 and response.status not in _TELLING:
        return TransportError(detail, request_id=request_id)
    return error_of_problem(
        {"detail": detail, "request_id": request_id},
        response.status,
        retry_after_seconds=retry_after,
    )


def path_segment(name: str) -> str:
    """Return *name* as one path segment; raise ValidationError if that is impossible.

    That is a name that has no UTF-8 form, or that changes the path: an empty one, or dots.
    """
    if name in ("", ".", ".."):
        raise ValidationError(
            f"expected a name or an id, found {name!r}", fix="give the name or id of the resource"
        )
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise _half_surrogate(name) from None


def target_of(path: str, **query: str | float | bool | None) -> str:
    """Return *path* with a query of the values that are not None; raise ValidationError."""
    pairs = [
        (name.rstrip("_"), str(value).lower() if isinstance(value, bool) else value)
        for name, value in query.items()
        if value is not None
    ]
    try:
        return f"{path}?{urlencode(pairs)}" if pairs else path
    except UnicodeEncodeError as error:
        raise _half_surrogate(error.object) from None


def _half_surrogate(text: str) -> ValidationError:
    return ValidationError(f"{text!r:.80}: contains half of a surrogate pair")


def _seconds(text: str | None) -> float | None:
    try:
        value = float(text) if text else None
    except ValueError:
        return None  # the other form, a date, is useless for a retry
    if value is None or not 0 <= value < float("inf"):
        return None
    return min(value, RETRY_AFTER_SECONDS_MAX)
