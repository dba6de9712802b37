"""Media types: what a request brings and what its sender wants back.

Source: RFC 9110 sections 8.3 and 12.5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from eruca.contract.errors import NotAcceptableError, UnsupportedMediaTypeError

JSON_MEDIA_TYPE: Final = "application/json"
_ACCEPT_SIZE_MAX: Final = 4096  # bytes that are looked at; bounds the cache


def check_request(headers: Mapping[bytes, bytes], expected: str) -> None:
    """Check that a body is of the media type *expected* and its answer may be JSON.

    Raises:
        UnsupportedMediaTypeError: It is of another type, or compressed as a whole.
        NotAcceptableError: The client does not take JSON.
    """
    if b"accept" in headers:
        choose(headers[b"accept"], (JSON_MEDIA_TYPE,))
    check_body_type(headers, expected)


def check_body_type(headers: Mapping[bytes, bytes], expected: str) -> None:
    """Raise UnsupportedMediaTypeError where a body is not plainly of the media type *expected*."""
    check_content_type(headers.get(b"content-type"), expected)
    if b"content-encoding" in headers:
        check_not_encoded(headers[b"content-encoding"])


def check_content_type(value: bytes | None, expected: str) -> None:
    """Raise UnsupportedMediaTypeError where a body is not of the media type *expected*.

    A body of no named type is taken for JSON.
    """
    if value is None and expected == JSON_MEDIA_TYPE:
        return
    if value is not None and _media_type(value[:_ACCEPT_SIZE_MAX]) == expected:
        return
    shown = "unnamed" if value is None else value[:80].decode("latin-1")
    raise UnsupportedMediaTypeError(
        f"the body's type is {shown}; this operation takes {expected}",
        fix=f"set the header Content-Type: {expected}",
    )


def check_not_encoded(content_encoding: bytes) -> None:
    """Raise UnsupportedMediaTypeError where a body is compressed as a whole."""
    if content_encoding.strip().lower() != b"identity":
        raise UnsupportedMediaTypeError(
            f"Content-Encoding {content_encoding[:80].decode('latin-1')} is not undone here",
            fix="send the body as it is; messages may be compressed one by one",
        )


def choose(accept: bytes | None, offered: tuple[str, ...]) -> str:
    """Return the media type to answer with: the first of *offered* where the client does not mind.

    Raises:
        NotAcceptableError: The client takes none of them.
    """
    if accept is None or accept == b"*/*":
        return offered[0]
    chosen = _choose(accept[:_ACCEPT_SIZE_MAX], offered)
    if chosen is None:
        raise NotAcceptableError(
            f"the answer comes as {' or '.join(offered)}, and Accept allows neither",
            fix=f"set the header Accept: {offered[0]}",
        )
    return chosen


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
        # Of types it likes alike, a client means the one it named.
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
