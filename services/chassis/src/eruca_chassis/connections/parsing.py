"""The HTTP parser of connections, and what is told of a request that it does not take."""

from __future__ import annotations

import httptools

from eruca.contract.errors import RequestError


def new_parser(callbacks: object) -> httptools.HttpRequestParser:
    """Return a parser that takes what uvicorn's does: requests behind one that closes, too."""
    parser = httptools.HttpRequestParser(callbacks)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def unreadable(error: httptools.HttpParserError) -> RequestError:
    """Return what is told of a request that the parser does not take."""
    # A URL that passes there may fail when it is taken apart, in a callback.
    cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
    if isinstance(cause, RequestError):
        return cause
    if isinstance(cause, httptools.HttpParserInvalidURLError):
        return RequestError(
            "the request's URL cannot be read",
            fix="write it in ASCII, and any other character as the %XX of its UTF-8",
        )
    reason = str(error)
    return RequestError(
        f"what arrived is not HTTP/1.1: {reason[:1].lower()}{reason[1:]}",
        fix="send a request of HTTP/1.1, with a method that OpenAPI names, and without TLS",
    )
