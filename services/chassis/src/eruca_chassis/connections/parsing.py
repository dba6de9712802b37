"""The HTTP parser of connections, and what is told of a request that it does not take."""

from __future__ import annotations

import re
from typing import Final

import httptools

from eruca.contract.errors import RequestError, UnknownMethodError

# A method is a token, and a space follows (RFC 9110 section 9.1, RFC 9112 section 3). Of a head
# that comes in pieces, the one in which the parser stops may end before that.
_METHOD: Final = re.compile(rb"[\r\n]*(?P<method>[!#$%&'*+.^_`|~0-9A-Za-z-]+)(?P<end> |\Z)")
_SHOWN_SIZE_MAX: Final = 80  # characters of an unknown method that are shown


def new_parser(callbacks: object) -> httptools.HttpRequestParser:
    """Return a parser that takes what uvicorn's does: requests behind one that closes, too."""
    parser = httptools.HttpRequestParser(callbacks)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def unreadable(error: httptools.HttpParserError, piece: bytes, *, is_first: bool) -> RequestError:
    """Return what is told of a request that the parser does not take.

    Args:
        error: The parser's.
        piece: What it stopped in.
        is_first: Whether the request begins with it.
    """
    # A URL that passes there may fail when it is taken apart, in a callback.
    cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
    if isinstance(cause, RequestError):
        return cause
    if isinstance(cause, httptools.HttpParserInvalidURLError):
        return RequestError(
            "the request's URL cannot be read",
            fix="write it in ASCII, and any other character as the %XX of its UTF-8",
        )
    if isinstance(cause, httptools.HttpParserInvalidMethodError):
        found = _METHOD.match(piece)
        if found is not None:
            return _unknown_method(found["method"] if is_first and found["end"] else b"")
    reason = str(error)
    return RequestError(
        f"what arrived is not HTTP/1.1: {reason[:1].lower()}{reason[1:]}",
        fix="send a request of HTTP/1.1, with a method that OpenAPI names, and without TLS",
    )


def _unknown_method(method: bytes) -> UnknownMethodError:
    name = method.decode()
    shown = name if len(name) <= _SHOWN_SIZE_MAX else name[: _SHOWN_SIZE_MAX - 1] + "…"
    detail = f"the method {shown} is unknown" if name else "the request's method is unknown"
    return UnknownMethodError(detail)
