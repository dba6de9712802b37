"""The HTTP parser of connections, and the errors for requests that it rejects."""

from __future__ import annotations

import re
from typing import Final

import httptools

from eruca.contract.errors import RequestError, UnknownMethodError
from eruca.contract.errors.shown import shown

# A method is a token, and a space follows (RFC 9110 section 9.1, RFC 9112 section 3). Of a head
# that arrives in pieces, the piece in which the parser stops may end before that.
_METHOD: Final = re.compile(rb"[\r\n]*(?P<method>[!#$%&'*+.^_`|~0-9A-Za-z-]+)(?P<end> |\Z)")


def new_parser(callbacks: object) -> httptools.HttpRequestParser:
    """Return a parser configured like uvicorn's: it also takes requests after one that closes."""
    parser = httptools.HttpRequestParser(callbacks)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def unreadable(error: httptools.HttpParserError, piece: bytes, *, is_first: bool) -> RequestError:
    """Return the error for a request that the parser rejects.

    Args:
        error: The parser's error.
        piece: The bytes in which the parser stopped.
        is_first: Whether the request begins with *piece*.
    """
    # The parser may accept a URL that a callback then fails to split.
    cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
    if isinstance(cause, RequestError):
        return cause
    if isinstance(cause, httptools.HttpParserInvalidURLError):
        return RequestError(
            "the request's URL cannot be parsed",
            fix="write it in ASCII; percent-encode other characters as UTF-8 (%XX)",
        )
    if isinstance(cause, httptools.HttpParserInvalidMethodError):
        found = _METHOD.match(piece)
        if found is not None:
            return _unknown_method(found["method"] if is_first and found["end"] else b"")
    reason = str(error)
    return RequestError(
        f"the data is not HTTP/1.1: {reason[:1].lower()}{reason[1:]}",
        fix="send a request of HTTP/1.1, with a method that OpenAPI names, and without TLS",
    )


def _unknown_method(method: bytes) -> UnknownMethodError:
    name = method.decode()
    detail = f"the method {shown(name)} is unknown" if name else "the request's method is unknown"
    return UnknownMethodError(detail)
