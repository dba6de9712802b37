"""Content negotiation: choose an answer's media type; refuse encoded bodies.

Source: RFC 9110 sections 8.4 and 12.5.1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from starlette.datastructures import Headers

from eruca.contract.errors import NotAcceptableError, UnsupportedMediaTypeError

_ACCEPT_SIZE_MAX: Final = 4096  # bytes that are parsed; bounds the cache


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


def check_not_encoded(content_encoding: bytes) -> None:
    """Raise UnsupportedMediaTypeError if a body has a Content-Encoding."""
    if content_encoding.strip().lower() != b"identity":
        raise UnsupportedMediaTypeError(
            f"unsupported Content-Encoding {content_encoding[:80].decode('latin-1')}",
            fix="send the body without Content-Encoding",
        )


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
