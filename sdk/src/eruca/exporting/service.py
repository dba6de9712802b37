"""Requests to a service, with retries until a time limit.

Every request of the data source and of its replays is made here, with the service's credentials
(:mod:`eruca.exporting.credentials`). They go to the URLs that the options name, and to brokers that
name servers name. No redirect is followed.

The module uses only the standard library, because Spark sends the source to every executor.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import pyarrow as pa

from eruca.exporting.credentials import Credentials, credentials_of
from eruca.exporting.errors import (
    BrokenAnswer,
    RangeDeleted,
    RefusedError,
    StoppedError,
    UnavailableError,
)

_BACKOFF_SECONDS: Final = (0.1, 5.0)  # first and longest pause before a retry
_RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_GONE: Final = 410
_UNAUTHENTICATED: Final = 401
_DAMAGED: Final = "message-damaged"  # … but it exists
_SILENT_SECONDS: Final = 2.0  # after this time, the wait is reported once on stderr


class Patience:
    """Limits retries to a time without progress, with growing pauses.

    Args:
        seconds: The limit.
        whom: What is asked, for texts.
        stop: Set if the work should end.
    """

    def __init__(self, seconds: float, whom: str, stop: threading.Event | None = None) -> None:
        self._seconds = seconds
        self._whom = whom
        self._stop = stop
        self._since = time.monotonic()
        self._wait = _BACKOFF_SECONDS[0]
        self._has_told = False

    def progressed(self) -> None:
        """Reset the time limit after progress."""
        self._since = time.monotonic()
        self._wait = _BACKOFF_SECONDS[0]
        self._has_told = False

    def wait(self, error: Exception) -> None:
        """Sleep before the next attempt.

        Raises:
            UnavailableError: The time limit is over.
            StoppedError: The work should end.
        """
        wait = max(self._wait, getattr(error, "retry_after", 0.0))
        waited = time.monotonic() - self._since
        if waited + wait > self._seconds:
            raise UnavailableError(
                f"{self._whom}: no progress for {self._seconds:g} s (option retrySeconds):"
                f" {_text_of(error)}"
            ) from error
        if waited > _SILENT_SECONDS and not self._has_told:
            self._has_told = True
            print(
                f"{self._whom}: retrying for up to {self._seconds:g} s (option retrySeconds):"
                f" {_text_of(error)}",
                file=sys.stderr,
            )
        if self._stop is None:
            time.sleep(wait)
        elif self._stop.wait(wait):
            raise StoppedError
        self._wait = min(2 * self._wait, _BACKOFF_SECONDS[1])


TRANSIENT: Final = (OSError, http.client.HTTPException, pa.ArrowInvalid, BrokenAnswer)
"""Errors of a service that goes away; pyarrow calls a truncated stream invalid."""


class Service:
    """Requests to one of several equivalent services.

    Args:
        urls: The services.
        timeout: Seconds for each step of a request.
        patience: Seconds without progress before requests fail.
        credentials: For the requests; None: the process's own.
        stop: Set if the work should end; then no request is retried.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        timeout: float,
        patience: float,
        credentials: Credentials | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._urls = list(urls)
        self._stop = stop
        self._credentials = credentials or credentials_of(os.environ)
        self._timeout = timeout
        self._patience = patience
        self._kept: http.client.HTTPConnection | None = None  # of kept_request

    @property
    def url(self) -> str:
        """The URL of the next request."""
        return self._urls[0]

    def patience(self) -> Patience:
        """Return a new retry limit for this service."""
        return Patience(self._patience, ", ".join(sorted(self._urls)), self._stop)

    def get_json(self, path: str, query: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """Return the JSON object of an answer, with retries until the time limit.

        Raises:
            UnavailableError: There was no answer.
            RefusedError: The service refused.
        """
        patience = self.patience()
        while True:
            try:
                connection = self._connect()
                with closing(connection):
                    answer = self.request(connection, "GET", path, query)
                    document: dict[str, Any] = json.loads(answer.read())
                    return document
            except TRANSIENT as error:
                self.next_url()
                patience.wait(error)

    def open(
        self, path: str, query: Sequence[tuple[str, str]]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Return an answer to read, and the connection to close afterwards."""
        connection = self._connect()
        try:
            return connection, self.request(connection, "GET", path, query)
        except BaseException:
            connection.close()
            raise

    def next_url(self) -> None:
        """Use the next of the URLs."""
        self._urls.append(self._urls.pop(0))
        self.close()

    def request(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]] = (),
        *,
        body: bytes | None = None,
        more_headers: Mapping[str, str] = MappingProxyType({}),
    ) -> http.client.HTTPResponse:
        """Return a 2xx answer.

        Raises:
            BrokenAnswer: A retry may succeed.
            RangeDeleted: Messages of the range are deleted.
            RefusedError: A retry fails as well.
        """
        target = path + (f"?{urlencode(query)}" if query else "")
        headers = {"accept": "application/vnd.apache.arrow.stream, application/json"}
        headers |= more_headers
        if body is not None:
            headers["content-type"] = "application/json"
        added = self._credentials.headers(self._urls[0])
        connection.request(method, target, body, {**headers, **added})
        answer = connection.getresponse()
        if answer.status == _UNAUTHENTICATED and self._credentials.renew(added):
            answer.read()
            added = self._credentials.headers(self._urls[0])
            connection.request(method, target, body, {**headers, **added})
            answer = connection.getresponse()
        if 200 <= answer.status < 300:
            return answer
        code, problem = _problem_of(answer.read())
        text = f"{method} {target.partition('?')[0]} answered {answer.status}: {problem}"
        if answer.status == _GONE and code != _DAMAGED:
            raise RangeDeleted(text)
        if answer.status in _RETRIED:
            raise BrokenAnswer(text, retry_after=_seconds_of(answer.getheader("retry-after")))
        raise RefusedError(text, code)

    def kept_request(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]],
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[http.client.HTTPMessage, bytes]:
        """Return the headers and the body of an answer, without a retry.

        The connection is kept for the next request; :meth:`close` closes it. Raises as
        :meth:`request` does.
        """
        connection, self._kept = self._kept or self._connect(), None
        try:
            answer = self.request(connection, method, path, query, body=body, more_headers=headers)
            content = answer.read()
        except BaseException:
            connection.close()
            raise
        self._kept = connection
        return answer.headers, content

    def close(self) -> None:
        """Close the kept connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._urls[0])
        assert parts.hostname is not None
        if parts.scheme != "https":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=self._timeout)
        context = self._credentials.ssl_context()
        return http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=self._timeout, context=context
        )


def _problem_of(body: bytes) -> tuple[str | None, str]:
    """Return the code of a problem document, or None, and the body's text."""
    try:
        problem = json.loads(body)
        return problem[
            "code"
        ], f"{problem['code']}: {problem.get('detail') or problem.get('title')}"
    except (ValueError, KeyError, TypeError):
        return None, body[:200].decode(errors="replace")


def _seconds_of(retry_after: str | None) -> float:
    return float(retry_after) if retry_after and retry_after.isdecimal() else 0.0


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if isinstance(error, OSError) else str(error)
