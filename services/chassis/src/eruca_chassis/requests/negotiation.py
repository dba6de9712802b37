"""Content negotiation: check a body's media type, choose an answer's; refuse encoded bodies.

Source: RFC 9110 sections 8.3, 8.4 and 12.5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from starlette.datastructures import Headers

from eruca.contract.errors import NotAcceptableError, UnsupportedMediaTypeError
from eruca.contract.wire import JSON_MEDIA_TYPE

_ACCEPT_SIZE_MAX: Final = 4096  # bytes that are parsed; bounds the cache
_TYPE_SIZE_MAX: Final = 4096  # bytes that are parsed; bounds the cache


def accept_of(headers: Headers) -> bytes | None:
    """Return a request's Accept headers, joined for :func:`choose`."""
    values = headers.getlist("accept")
    return ",".join(values).encode("latin-1") if values else None


def choose(accept: bytes | None, offered: tuple[str, ...]) -> str:
    """Choose the media type of the answer; the first of *offered* if the client has no preference.

    Raises:
        NotAcceptableError: The client accepts none of them.
    """
    if accept is None or accept == b"*/*":
        return offered[0]
    chosen = _choose(accept[:_ACCEPT_SIZE_MAX], offered)
    if chosen is None:
        raise NotAcceptableError(
            f"valid media types: {', '.join(offered)}; Accept allows none of them",
            fix=f"set the header Accept: {offered[0]}",
        )
    return chosen


def body_type(headers: Mapping[bytes, bytes], taken: tuple[str, ...]) -> str:
    """Return which of the media types that an operation takes a body is of.

    Where the first of them is JSON, a body of no named type is JSON.

    Raises:
        UnsupportedMediaTypeError: None of them, or it is compressed as a whole.
    """
    value = headers.get(b"content-type")
    found = taken[0] if value is None and taken[0] == JSON_MEDIA_TYPE else None
    if value is not None:
        found = _media_type(value[:_TYPE_SIZE_MAX])
    if found not in taken:
        shown = "unnamed" if value is None else value[:80].decode("latin-1")
        raise UnsupportedMediaTypeError(
            f"the body's type is {shown}; this operation takes {' or '.join(taken)}",
            fix=f"set the header Content-Type: {taken[0]}",
        )
    if b"content-encoding" in headers:
        check_not_encoded(headers[b"content-encoding"])
    return found


def check_not_encoded(content_encoding: bytes) -> None:
    """Raise UnsupportedMediaTypeError if a body has a Content-Encoding."""
    if content_encoding.strip().lower() != b"identity":
        raise UnsupportedMediaTypeError(
            f"unsupported Content-Encoding {content_encoding[:80].decode('latin-1')}",
            fix="send the body without Content-Encoding",
        )


@lru_cache(maxsize=256)
def _media_type(value: bytes) -> str:
    return value.decode("latin-1").partition(";")[0].strip().lower()


@lru_cache(maxsize=256)
def _choose(accept: bytes, offered: tuple[str, ...]) -> str | None:
    ranges = [_range(part) for part in accept.decode("latin-1").lower().split(",") if part.strip()]
    best: str | None = None
    best_rank = (0.0, -1)
    for media_type in offered:
        wildcards = {media_type: 2, f"{media_type.partition('/')[0]}/*": 1, "*/*": 0}
        fitting = [(wildcards[name], q) for name, q in ranges if name in wildcards]
        if not fitting:
            continue
        specificity, q = max(fitting)
        # Of types with equal quality, the client prefers the one it named.
        if q > 0 and (q, specificity) > best_rank:
            best, best_rank = media_type, (q, specificity)
    return best


def _range(text: str) -> tuple[str, float]:
    name, *parameters = (part.strip() for part in text.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return name, min(max(float(parameter[2:]), 0.0), 1.0)
            except ValueError:
                return name, 0.0
    return name, 1.0
