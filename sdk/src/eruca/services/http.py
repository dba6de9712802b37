"""HTTP for services: clients with their credentials, parts of a URL, refusals as errors."""

from __future__ import annotations

from eruca.aio.http.clients import http1_transport, httpx_client
from eruca.aio.http.credentials import ANONYMOUS, Credentials, credentials_of
from eruca.aio.http.transport import (
    JSON_HEADER,
    ConnectTimeoutError,
    HttpResponse,
    HttpTransport,
    NotConnectedError,
    path_segment,
    problem_error,
    target_of,
)

__all__ = [
    "ANONYMOUS",
    "JSON_HEADER",
    "ConnectTimeoutError",
    "Credentials",
    "HttpResponse",
    "HttpTransport",
    "NotConnectedError",
    "credentials_of",
    "http1_transport",
    "httpx_client",
    "path_segment",
    "problem_error",
    "target_of",
]
