"""Media types: what a request brings; and, by the chassis, what its sender wants back.

Source: RFC 9110 section 8.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from eruca.contract.errors import UnsupportedMediaTypeError
from eruca_chassis.negotiation import check_not_encoded, choose

__all__ = ["JSON_MEDIA_TYPE", "check_body_type", "check_content_type", "check_request", "choose"]

JSON_MEDIA_TYPE: Final = "application/json"
_TYPE_SIZE_MAX: Final = 4096  # bytes that are looked at; bounds the cache


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
    if value is not None and _media_type(value[:_TYPE_SIZE_MAX]) == expected:
        return
    shown = "unnamed" if value is None else value[:80].decode("latin-1")
    raise UnsupportedMediaTypeError(
        f"the body's type is {shown}; this operation takes {expected}",
        fix=f"set the header Content-Type: {expected}",
    )


@lru_cache(maxsize=256)
def _media_type(value: bytes) -> str:
    return value.decode("latin-1").partition(";")[0].strip().lower()
