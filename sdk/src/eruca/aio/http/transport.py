"""The transport seam: what the SDK needs of HTTP, in two implementations.

:class:`eruca.aio.http.http1.Http1Transport` carries the hot routes, :class:`HttpxTransport` the
rest (administration, name servers). Either can be replaced by an object with the same two methods,
or httpx's client by one that goes through a proxy.
"""

from __future__ import annotations

import asyncio
import importlib
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote, urlencode

import msgspec

from eruca.aio.http.credentials import ANONYMOUS, Credentials
from eruca.aio.http.ownership import Ownership
from eruca.contract.errors import (
    PROBLEM_MEDIA_TYPE,
    ClosedError,
    ErucaError,
    TimeoutExpiredError,
    TransportError,
    ValidationError,
    error_of_problem,
)
from eruca.contract.records import Buffer

if TYPE_CHECKING:
    import httpx

    from eruca.aio.http.httpx_carrier import Carrier

JSON_HEADER: Final = ("content-type", "application/json")
# What decoding raises: msgspec lets out texts that are not UTF-8, and nesting without end.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# A connection that is silent for 5 s is tried, and given up after three tries, 2 s apart.
TLS_EXPECTED: Final = "TLS is spoken there: the URL should begin with https://, not http://"
# OpenSSL's words for an answer that is no TLS; which one depends on the answer's first bytes.
_NO_TLS_SIGNS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_PERHAPS_HTTP: Final = "if the server speaks plain HTTP, write http:// instead of https://"
_PERHAPS_HTTPS: Final = "if the server expects TLS, write https:// instead of http://"
_TLS_ALERT: Final = b"\x15\x03"  # RFC 8446: content type alert, and the version's first byte
_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
_CARRIER: Final = "eruca.aio.http.httpx_carrier"
_CONNECT_SHARE: Final = 0.9  # of a request's time: for the connection, TLS handshake included
_DETAIL_SIZE_MAX: Final = 200  # characters of a foreign answer that an error repeats
_TELLING: Final = frozenset({413, 429})  # of the foreign ones below 500: too large, too much
# Brokers ask for seconds. A proxy's page may say an hour, and a consumer would hold its queues, and
# read nothing, for as long.
RETRY_AFTER_SECONDS_MAX: Final = 30.0


class HttpResponse(msgspec.Struct, frozen=True):
    """An answer, read to its end."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class NotConnectedError(TransportError):
    """There was no connection: nothing of the request has been sent."""

    code = TransportError.code


class ConnectTimeoutError(TimeoutExpiredError):
    """There was no connection before the deadline: nothing of the request has been sent."""

    code = TimeoutExpiredError.code


def connection_fault(error: Exception, url: str) -> str:
    """Return why there was no connection to *url*; names the right scheme where that is known."""
    text = str(error)
    if any(sign in text for sign in _NO_TLS_SIGNS):
        return "no TLS is spoken there: the URL should begin with http://, not https://"
    if url.startswith("https:") and (not text or "EOF" in text or "reset" in text.lower()):
        return f"the connection was closed during the TLS handshake; {_PERHAPS_HTTP}"
    return getattr(error, "strerror", None) or text or type(error).__name__


def late_connection(url: str) -> str:
    """Return what to add to the error of a connection that was not there in time."""
    return f"; {_PERHAPS_HTTP}" if url.startswith("https:") else ""


def perhaps_tls(url: str) -> str:
    """Return what to add to the error of a new connection that ended without a byte."""
    return "" if url.startswith("https:") else f"; {_PERHAPS_HTTPS}"


def is_tls_alert(data: bytes) -> bool:
    """Tell whether *data*, in place of an HTTP answer, is TLS refusing what is no TLS."""
    return data.startswith(_TLS_ALERT)


class HttpTransport(Protocol):
    """Sends one request and returns its answer, whatever its status.

    ``request`` raises TransportError or TimeoutExpiredError when there is no answer, those of this
    module where it is certain that nothing has been sent; being cancelled gives up the connection.
    *url* is scheme, host and port; *target* begins with ``/``.
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


class HttpxTransport:
    """The transport seam on httpx; makes its client when it is first used."""

    def __init__(
        self, client: httpx.AsyncClient | None = None, *, credentials: Credentials = ANONYMOUS
    ) -> None:
        importlib.import_module(_CARRIER)  # with httpx 0.1 s and more, which no request has
        self._client = client
        self._carrier: Carrier | None = None  # of a client of our own
        self._credentials = credentials
        self._ownership = Ownership()
        self._is_closed = False

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
        self._ownership.check()
        import httpx

        if self._is_closed:
            raise ClosedError("the client is closed")
        if self._client is None:
            from eruca.aio.http.httpx_carrier import Carrier, client_over

            self._carrier = Carrier(self._credentials, socket_options=keep_alive_options())
            self._client = client_over(self._carrier)
        try:
            # httpx limits each step of a request; the deadline is for all of it.
            async with asyncio.timeout(timeout):
                if self._carrier is None and self._credentials.has_headers:
                    headers = (*headers, *await self._credentials.headers(url))
                request = self._client.build_request(
                    method,
                    url.rstrip("/") + target,
                    headers=list(headers),
                    content=b"".join(body) if body else None,
                    # A handshake that times out is closed by httpx; a cancelled one is leaked.
                    timeout=httpx.Timeout(timeout, connect=timeout * _CONNECT_SHARE),
                )
                if self._carrier is None:
                    answer = await self._client.send(request)
                else:
                    answer = await _carried(self._carrier, request)
        except httpx.ConnectError as error:
            fault = connection_fault(error, url)
            raise NotConnectedError(f"{method} {url}{target}: {fault}") from error
        except (httpx.ConnectTimeout, httpx.PoolTimeout):
            raise ConnectTimeoutError(
                f"{method} {url}{target}: no connection within {timeout:.3g} s"
                f"{late_connection(url)}"
            ) from None
        except (TimeoutError, httpx.TimeoutException):
            raise TimeoutExpiredError(
                f"{method} {url}{target}: no answer within {timeout:.3g} s"
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:  # the last one: idna's
            text = str(error).rstrip(".") or type(error).__name__
            if isinstance(error, httpx.RemoteProtocolError):
                if text == "illegal request line":  # h11's word for an answer of bytes, not text
                    text = f"the answer is not HTTP{perhaps_tls(url)}"
                elif "disconnected without" in text:
                    text += perhaps_tls(url)
            raise TransportError(f"{method} {url}{target}: {text}") from error
        return HttpResponse(answer.status_code, dict(answer.headers), answer.content)

    async def close(self) -> None:
        """Close every connection."""
        self._is_closed = True
        client, self._client = self._client, None
        if client is not None and self._ownership.is_ours:
            await client.aclose()


async def _carried(carrier: httpx.AsyncBaseTransport, request: httpx.Request) -> httpx.Response:
    """Return the answer to *request* without httpx's client: that logs a line for each, as news."""
    answer = await carrier.handle_async_request(request)
    try:
        await answer.aread()
    except BaseException:
        await answer.aclose()
        raise
    return answer


def keep_alive_options() -> list[tuple[int, int, int]]:
    """Return what makes the system look after a connection on which an answer is awaited.

    A held request sends nothing for half a minute: without this, nobody would notice meanwhile
    that its packets are lost, or that the other machine has restarted.
    """
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in _KEEP_ALIVE.items():
        if (option := getattr(socket, name, None)) is not None:  # each system has its own
            options.append((socket.IPPROTO_TCP, option, value))
    return options


def problem_error(response: HttpResponse, what: str) -> ErucaError:
    """Return the error of an answer of status 300 or more; foreign answers are quoted.

    Those are a proxy's, or of whatever has got the address of a broker that is gone. None of them
    is the broker's word, so none refuses anything for good, but that a request is too large.
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
    detail = f"{what}: HTTP status {response.status}, and no problem document: {text or 'nothing'}"
    request_id = response.headers.get("x-request-id")
    if response.status < 500 and response.status not in _TELLING:
        return TransportError(detail, request_id=request_id)
    return error_of_problem(
        {"detail": detail, "request_id": request_id},
        response.status,
        retry_after_seconds=retry_after,
    )


def path_segment(name: str) -> str:
    """Return *name* as one segment of a path; ValidationError where it would be none.

    That is what has no form in UTF-8, and what makes another path of it: nothing, and dots.
    """
    if name in ("", ".", ".."):
        raise ValidationError(f"{name!r} is no name and no id", fix="give that of what is meant")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise _half_surrogate(name) from None


def target_of(path: str, **query: str | float | bool | None) -> str:
    """Return *path* with a query of what is not None; ValidationError as for a segment."""
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
    return ValidationError(f"{text!r:.80}: it holds half of a surrogate pair")


def _seconds(text: str | None) -> float | None:
    try:
        value = float(text) if text else None
    except ValueError:
        return None  # the other form, a date, says nothing a retry could use
    if value is None or not 0 <= value < float("inf"):
        return None
    return min(value, RETRY_AFTER_SECONDS_MAX)
