"""ASGI without FastAPI: headers, request ids and problem documents.

Source: ASGI 3.0, HTTP & WebSocket protocol; RFC 9457; RFC 9110 sections 10.2.2 (Location) and
10.2.3 (Retry-After); W3C Trace Context, sections 3.2 (traceparent) and 3.3 (tracestate).
"""

from __future__ import annotations

import itertools
import json
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final, TypeAlias

from eruca.contract.errors import (
    PROBLEM_MEDIA_TYPE,
    ErucaError,
    QuotaExceededError,
    TooLargeError,
    UnauthenticatedError,
)

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]
Handler: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[int]]
"""A raw handler: answers the request and returns the status."""

REQUEST_ID_HEADER: Final = b"x-request-id"
TRACEPARENT_HEADER: Final = b"traceparent"
BODILESS: Final = frozenset({204, 304})  # statuses of answers without a body
_REQUEST_ID_KEY = "eruca.request_id"  # key in the scope, once decided
_SANE_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}\Z")  # fit for a log line and a header
# Version, trace id, the parent's id, flags. Later versions may add fields; ids are not all zeros.
_TRACEPARENT = re.compile(
    rb"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})(?P<trace_id>[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}"
    rb"-[0-9a-f]{2}(?P<more>-[\x21-\x7e]*)?\Z"
)
_TRACEPARENT_SIZE_MAX: Final = 128  # bytes that are passed on; version 00 has 55
_TRACESTATE: Final = re.compile(rb"[\x20-\x7e]{1,512}\Z")  # every vendor must pass on 512 bytes

_FIRST_REQUEST_ID: Final = secrets.randbits(64)
_request_count: Final = itertools.count()
_DIGITS_MAX: Final = 19  # of a length in bytes; no real body needs more
_CHALLENGE: Final = (b"www-authenticate", b'Bearer realm="eruca", Basic realm="eruca"')
_QUOTA_UNITS: Final = {
    "bytes_in_per_second": ';qu="content-bytes"',
    "bytes_out_per_second": ';qu="content-bytes"',
    "requests_under_way_max": ';qu="concurrent-requests"',
}
_PROBLEM_HEADER: Final = (b"content-type", PROBLEM_MEDIA_TYPE.encode())


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete; nobody reads an answer."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the first header with this *name* (in lower case), or None."""
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return None


def joined_headers(pairs: Sequence[Header]) -> dict[bytes, bytes]:
    """Return a request's headers by name; several with one name are joined by commas."""
    headers = dict(pairs)
    if len(headers) != len(pairs):
        headers = {}
        for name, value in pairs:
            headers[name] = headers[name] + b"," + value if name in headers else value
    return headers


def declared_size(scope: Scope) -> int | None:
    """Return the body's size in bytes from Content-Length; None without a valid one."""
    return size_said(header(scope, b"content-length"))


def size_said(content_length: bytes | None) -> int | None:
    """Parse a Content-Length; None if it is missing or invalid.

    An absurdly long number is cut to 19 digits, which still exceeds every limit.
    """
    if content_length is None or not content_length.isdigit():
        return None
    return int(content_length.lstrip(b"0")[:_DIGITS_MAX] or b"0")


def target_said(scope: Scope) -> bytes:
    """Return the request's path and query, as sent; empty if the server does not say them."""
    path: bytes = scope.get("raw_path") or b""
    query: bytes = scope["query_string"]
    return path + b"?" + query if query else path


def request_id(scope: Scope) -> str:
    """Return the request's id: the client's X-Request-Id if it is valid, else a new one."""
    known = scope.get(_REQUEST_ID_KEY)
    if known is None:
        known = scope[_REQUEST_ID_KEY] = chosen_request_id(header(scope, REQUEST_ID_HEADER))
    return str(known)


def chosen_request_id(sent: bytes | None) -> str:
    """Return the id a client *sent* if it is valid, else a new one."""
    return sane_request_id(sent) or new_request_id()


def sane_request_id(sent: bytes | None) -> str | None:
    """Return the id a client *sent* if it is fit for a log line and a header, else None."""
    if sent is None or not _SANE_REQUEST_ID.match(sent):
        return None
    return sent.decode()


def new_request_id() -> str:
    """Return an id that is unique in this process, and probably among all processes."""
    return f"{new_request_number():016x}"


def new_request_number() -> int:
    """Return the number that is a new request id, in hexadecimal digits."""
    # A counter with a random start: a random draw per id makes an answer four times as expensive.
    return _FIRST_REQUEST_ID + next(_request_count) & 2**64 - 1


def request_id_header(request_id: str) -> Header:
    """Return the answer's header with the request's id."""
    return (REQUEST_ID_HEADER, request_id.encode("latin-1", "replace"))


def log_names(scope: Scope) -> dict[str, str]:
    """Return the ids of the request for log lines: its own, and its trace's if it has one."""
    sent = [value for name, value in scope["headers"] if name == TRACEPARENT_HEADER]
    return names_in_log(request_id(scope), b",".join(sent))


def names_in_log(request_id: str, traceparent: bytes | None) -> dict[str, str]:
    """Return the ids for log lines from a request id and a *traceparent*."""
    names = {"request_id": request_id}
    said = None if traceparent is None else _traceparent_said(traceparent)
    if said is not None:
        names["trace_id"] = said["trace_id"].decode()
    return names


def trace_context_said(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the request's W3C trace context by header name; empty if it has none.

    An ill-formed ``traceparent`` counts as none, and then ``tracestate`` is ignored.
    """
    traceparent = headers.get(TRACEPARENT_HEADER)
    if traceparent is None or len(traceparent) > _TRACEPARENT_SIZE_MAX:
        return {}
    if _traceparent_said(traceparent) is None:
        return {}
    context = {"traceparent": traceparent.decode()}
    state = headers.get(b"tracestate", b"").strip()
    if _TRACESTATE.match(state):
        context["tracestate"] = state.decode()
    return context


def _traceparent_said(traceparent: bytes) -> re.Match[bytes] | None:
    said = _TRACEPARENT.match(traceparent)
    return None if said is None or (said["version"] == b"00" and said["more"]) else said


def body_too_large(size_max: int, limit_name: str) -> TooLargeError:
    """Return the error for a body larger than the limit named *limit_name*."""
    return TooLargeError(
        f"the request's body is larger than {limit_name}, {size_max} bytes",
        fix="send less in one request",
    )


async def send_answer(
    send: Send, status: int, body: bytes | memoryview, headers: Iterable[Header]
) -> int:
    """Send a complete answer and return its status."""
    length = (b"content-length", b"%d" % len(body))
    start = {"type": "http.response.start", "status": status, "headers": [*headers, length]}
    await send(start)
    await send({"type": "http.response.body", "body": body})
    return status


async def send_problem(
    send: Send, error: ErucaError, scope: Scope, headers: Iterable[Header] = ()
) -> int:
    """Answer the request of *scope* with *error* as a problem document; return its status."""
    identity = request_id(scope)
    return await send_answer(
        send,
        error.status,
        problem_body(error, identity),
        [*problem_headers(error, target_said(scope)), request_id_header(identity), *headers],
    )


def problem_body(error: ErucaError, request_id: str) -> bytes:
    """Return the problem document of *error*, as JSON."""
    text = json.dumps(error.problem(request_id), ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate has no UTF-8; as a backslash escape it is valid JSON.
    return text.encode("utf-8", "backslashreplace")


def problem_headers(error: ErucaError, target: bytes = b"") -> list[Header]:
    """Return the headers for the problem document of *error*, without the request's id.

    Args:
        error: The error.
        target: The request's path and query, as sent; empty: not known yet.
    """
    headers = [_PROBLEM_HEADER]
    if target.startswith(b"/") and error.redirect_url is not None:
        server = error.redirect_url.rstrip("/").encode("ascii", "ignore")
        headers.append((b"location", server + target))
    if isinstance(error, UnauthenticatedError):
        headers.append(_CHALLENGE)
    if error.retry_after_seconds is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_seconds))))
    if isinstance(error, QuotaExceededError):
        headers += rate_limit_headers(error)
    return headers


def rate_limit_headers(error: QuotaExceededError) -> list[Header]:
    """Return the headers that say which quota is used up, and for how long.

    Source: draft-ietf-httpapi-ratelimit-headers-11.
    """
    name, limit = error.quota, error.limit
    if limit <= 0 or not name.isascii() or '"' in name or "\\" in name:
        return []
    unit = _QUOTA_UNITS.get(name, "")
    if name.endswith("_per_second"):
        window = math.ceil(1 / limit) if limit < 1 else 1
        policy = f'"{name}";q={max(int(limit), 1)}{unit};w={window}'
    elif name.endswith("_max"):
        policy = f'"{name}";q={int(limit)}{unit}'
    else:
        return []  # a share is no number of things
    seconds = max(1, math.ceil(error.retry_after_seconds or 0))
    return [
        (b"ratelimit-policy", policy.encode()),
        (b"ratelimit", f'"{name}";r=0;t={seconds}'.encode()),
    ]
