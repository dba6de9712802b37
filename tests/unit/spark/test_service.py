"""Requests to a service: each carries the headers of its credentials, over their TLS context."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from eruca.exporting.errors import UnavailableError
from eruca.exporting.service import Service


class Signed:
    """Credentials of a test: a header that names the server, and a count of what was asked."""

    def __init__(self) -> None:
        self.context_count = 0

    def headers(self, url: str) -> Mapping[str, str]:
        return {"authorization": f"Bearer for {url}"}

    def renew(self, refused: Mapping[str, str]) -> bool:
        return False

    def ssl_context(self) -> ssl.SSLContext | None:
        self.context_count += 1
        return None


@contextmanager
def listening() -> Iterator[tuple[str, list[str | None]]]:
    """Yield a server's URL, and what its requests said of who made them."""
    said: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said.append(self.headers["authorization"])
            self.rfile.read(int(self.headers["content-length"] or 0))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        do_POST = do_GET  # noqa: N815  (the standard library's name)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", said
        finally:
            server.shutdown()
            thread.join()


def test_each_request_carries_the_headers_of_its_credentials() -> None:
    with listening() as (url, said):
        service = Service([url], timeout=5, patience=0, credentials=Signed())
        service.get_json("/plan")
        service.kept_request("POST", "/messages", (), body=b"{}")
        service.close()
        connection, answer = service.open("/records", ())
        answer.read()
        connection.close()

    assert said == [f"Bearer for {url}"] * 3


def test_requests_without_credentials_carry_nothing_of_them() -> None:
    with listening() as (url, said):
        Service([url], timeout=5, patience=0).get_json("/plan")

    assert said == [None]


def test_the_context_of_an_encrypted_connection_is_that_of_the_credentials() -> None:
    credentials = Signed()
    service = Service(["https://127.0.0.1:1"], timeout=5, patience=0, credentials=credentials)

    with pytest.raises(UnavailableError):
        service.get_json("/plan")

    assert credentials.context_count == 1
