"""A small API server for ConfigMaps that compares as Kubernetes does: there is no Kubernetes here.

It keeps to these rules of the API's documentation:

- Each object has a ``resourceVersion``, which changes with each change of it, and of any other.
- A creation of a name that exists is 409 ``AlreadyExists``. A replacement whose ``resourceVersion``
  is not the current one is 409 ``Conflict``; without one it would be unconditional.
- Requests need a bearer token (401), and the account a right (403).
- Lists have a label selector and pages (``limit``, ``continue``).
"""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest

NAMESPACE: Final = "eruca"
_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


class KubernetesServer:
    """The server, and the files that a pod would find.

    Attributes:
        config_maps: What it keeps, by name.
        page_count_max: Objects of one page, whatever is requested.
        is_forbidden: Whether the account has lost its rights.
        losses: The number of answers that are lost after the request was done.
    """

    def __init__(self, directory: Path) -> None:
        self.config_maps: dict[str, dict[str, Any]] = {}
        self.page_count_max = 2
        self.is_forbidden = False
        self.losses = 0
        self.token_file = directory / "token"
        self.ca_file = directory / "ca.crt"
        self._key_file = directory / "key.pem"
        self._version = 0
        self._lock = threading.Lock()
        self.issue_token("first")
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
                *("-keyout", str(self._key_file), "-out", str(self.ca_file)),
                *("-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1"),
            ],
            check=True,
            capture_output=True,
        )
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.ca_file, self._key_file)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def settings(self, prefix: str) -> dict[str, Any]:
        """Return a controller's settings."""
        return {
            "store": "kubernetes",
            "kubernetes_url": self.url,
            "kubernetes_namespace": NAMESPACE,
            "kubernetes_prefix": prefix,
            "kubernetes_token_file": self.token_file,
            "kubernetes_ca_file": self.ca_file,
        }

    def issue_token(self, token: str) -> None:
        """Replace the token, as a kubelet does before it expires."""
        self._token = token
        self.token_file.write_text(f"{token}\n")

    def start(self) -> None:
        """Serve."""
        self._thread.start()

    def stop(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(
        self, method: str, target: str, token: str | None, body: bytes
    ) -> tuple[int, dict[str, Any]]:
        """Return status and content."""
        with self._lock:
            if token != f"Bearer {self._token}":
                return _failure(401, "Unauthorized")
            if self.is_forbidden:
                return _failure(403, "configmaps is forbidden: User cannot use it")
            address = urlsplit(target)
            name = address.path.removeprefix(_PATH).removeprefix("/")
            assert address.path.startswith(_PATH), "the account has no other right"
            match method, name:
                case "GET", "":
                    return self._list(parse_qs(address.query))
                case "POST", "":
                    return self._create(json.loads(body))
                case "GET", _:
                    found = self.config_maps.get(name)
                    return _failure(404, "not found") if found is None else (200, found)
                case "PUT", _:
                    return self._replace(name, json.loads(body))
            return _failure(405, "method not allowed")

    def _create(self, config_map: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if config_map["metadata"]["name"] in self.config_maps:
            return _failure(409, "AlreadyExists")
        return 201, self._keep(config_map)

    def _replace(self, name: str, config_map: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if (current := self.config_maps.get(name)) is None:
            return _failure(404, "not found")
        version = config_map["metadata"].get("resourceVersion")
        if version not in (None, current["metadata"]["resourceVersion"]):
            return _failure(409, "Conflict: the object has been modified")
        return 200, self._keep(config_map)

    def _keep(self, config_map: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        config_map["metadata"]["resourceVersion"] = str(self._version)
        self.config_maps[config_map["metadata"]["name"]] = config_map
        return config_map

    def _list(self, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        label, _, value = query["labelSelector"][0].partition("=")
        after = query.get("continue", [""])[0]
        names = [
            name
            for name, one in sorted(self.config_maps.items())
            if name > after and one["metadata"]["labels"].get(label) == value
        ]
        count = min(int(query["limit"][0]), self.page_count_max)
        metadata = {"resourceVersion": str(self._version)}
        if len(names) > count:
            metadata["continue"] = names[count - 1]
        return 200, {"items": [self.config_maps[n] for n in names[:count]], "metadata": metadata}


def _failure(status: int, message: str) -> tuple[int, dict[str, Any]]:
    return status, {"kind": "Status", "status": "Failure", "message": message, "code": status}


def _handler_of(server: KubernetesServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            token = self.headers.get("authorization")
            status, content = server.answer(self.command, self.path, token, body)
            if server.losses and self.command != "GET":
                server.losses -= 1
                self.close_connection = True
                return
            text = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = _answer  # noqa: N815  (its base class's names)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return Handler


@contextmanager
def kubernetes_server(directory: Path) -> Iterator[KubernetesServer]:
    """Run a server whose data goes with it."""
    try:
        server = KubernetesServer(directory)
    except FileNotFoundError:
        pytest.skip("needs openssl to make a certificate")
    server.start()
    try:
        yield server
    finally:
        server.stop()
