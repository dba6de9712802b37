"""Media types: what a request brings; and, by the chassis, what its sender wants back.

Source: RFC 9110 section 8.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from eruca.contract.errors import UnsupportedMediaTypeError
from eruca_chassis.requests.negotiation import check_not_encoded, choose

__all__ = ["JSON_MEDIA_TYPE", "check_body_type", "check_content_type", "check_request", "choose"]

JSON_MEDIA_TYPE: Final = "application/json"
_TYPE_SIZE_MAX: Final = 4096  # bytes that are looked at; bounds the cache


def check_request(headers: Mapping[bytes, bytes], expected: str, *others: str) -> str:
    """Return which of the media types a body is of, and check that its answer may be JSON.

    Raises:
        UnsupportedMediaTypeError: It is of another type, or compressed as a whole.
        NotAcceptableError: The client does not take JSON.
    """
    if b"accept" in headers:
        choose(headers[b"accept"], (JSON_MEDIA_TYPE,))
    return check_body_type(headers, expected, *others)


def check_body_type(headers: Mapping[bytes, bytes], expected: str, *others: str) -> str:
    """Return which of the media types a body is of.

    Raises:
        UnsupportedMediaTypeError: None of them, or it is compressed as a whole.
    """
    found = check_content_type(headers.get(b"content-type"), expected, *others)
    if b"content-encoding" in headers:
        check_not_encoded(headers[b"content-encoding"])
    return found


def check_content_type(value: bytes | None, expected: str, *others: str) -> str:
    """Return which of the media types a body is of; one of no named type is taken for JSON.

    Raises:
        UnsupportedMediaTypeError: None of them.
    """
    if value is None and expected == JSON_MEDIA_TYPE:
        return expected
    if value is not None:
        found = _media_type(value[:_TYPE_SIZE_MAX])
        if found == expected or found in others:
            return found
    shown = "unnamed" if value is None else value[:80].decode("latin-1")
    taken = " or ".join((expected, *others))
    raise UnsupportedMediaTypeError(
        f"the body's type is {shown}; this operation takes {taken}",
        fix=f"set the header Content-Type: {expected}",
    )


@lru_cache(maxsize=256)
def _media_type(value: bytes) -> str:
    return value.decode("latin-1").partition(";")[0].strip().lower()
