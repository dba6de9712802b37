"""Requests to a Kubernetes API server for ConfigMaps, which need no client library.

A pod finds the server, its certificate authority and a token at fixed places. The token is read for
each request, because the kubelet replaces it before it expires.

Source: Kubernetes 1.30, "Accessing the Kubernetes API from a Pod", "API Concepts".
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from eruca.contract.errors import ArbiterUnavailableError, ErucaError
from eruca.services.http import JSON_HEADER, HttpTransport, target_of

REQUEST_SECONDS: Final = 3.0
RETRY_AFTER_SECONDS: Final = 2.0
PAGE_COUNT: Final = 100  # ConfigMaps of one answer; each may have a megabyte
_FIX: Final = (
    "let the service account get, list, create and update ConfigMaps in the namespace; "
    "see ERUCA_CONTROLLER_KUBERNETES_*"
)
_SHOWN_SIZE: Final = 200  # characters of the server's message that are repeated


class ServiceAccount:
    """The credentials of a pod: a bearer token, and the authority of the API server.

    Args:
        token_file: Contains the token.
        ca_file: Contains the authority's certificate.
    """

    has_headers: Final[bool] = True

    def __init__(self, token_file: Path, ca_file: Path) -> None:
        self._token_file = token_file
        self._ca_file = ca_file
        self._context: ssl.SSLContext | None = None

    async def headers(self, url: str) -> Sequence[tuple[str, str]]:
        """Return the header with the token.

        Raises:
            ArbiterUnavailableError: The file cannot be read.
        """
        try:
            token = await asyncio.to_thread(self._token_file.read_text)
        except OSError as error:
            raise _unreadable(self._token_file, error) from error
        return [("authorization", f"Bearer {token.strip()}")]

    async def renew(self, refused: Sequence[tuple[str, str]]) -> bool:
        """Tell whether the kubelet has replaced the token since it was *refused*."""
        return await self.headers("") != list(refused)

    async def ssl_context(self) -> ssl.SSLContext:
        """Return the context that trusts the API server's authority, and no other.

        Raises:
            ArbiterUnavailableError: The file cannot be read.
        """
        if self._context is None:
            try:
                self._context = await asyncio.to_thread(
                    ssl.create_default_context, cafile=str(self._ca_file)
                )
            except OSError as error:  # also what is no certificate: SSLError
                raise _unreadable(self._ca_file, error) from error
        return self._context


class KubernetesClient:
    """Reads and writes the ConfigMaps of one namespace.

    Args:
        transport: Sends the requests, with the service account's credentials.
        url: The API server's URL.
        namespace: Of the ConfigMaps.
    """

    def __init__(self, transport: HttpTransport, url: str, namespace: str) -> None:
        self._transport = transport
        self._url = url
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"

    async def get(self, name: str) -> dict[str, Any] | None:
        """Return a ConfigMap as it is now; None if there is none of this name."""
        status, found = await self._ask("GET", f"{self._path}/{name}", {404})
        return found if status == HTTPStatus.OK else None

    async def create(self, config_map: Mapping[str, Any]) -> bool:
        """Create a ConfigMap; return False if there is one of its name."""
        status, _ = await self._ask("POST", self._path, {409}, config_map)
        return status != HTTPStatus.CONFLICT

    async def replace(self, config_map: Mapping[str, Any]) -> bool:
        """Replace a ConfigMap; return False if it has another ``resourceVersion`` by now."""
        name = config_map["metadata"]["name"]
        assert config_map["metadata"]["resourceVersion"], "without it nothing is compared"
        status, _ = await self._ask("PUT", f"{self._path}/{name}", {404, 409}, config_map)
        return status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)

    async def list(self, label: str, *, count_max: int | None = None) -> list[dict[str, Any]]:
        """Return the ConfigMaps that have a label; all, or *count_max* of them."""
        found: list[dict[str, Any]] = []
        after: str | None = None
        while True:
            limit = PAGE_COUNT if count_max is None else min(PAGE_COUNT, count_max - len(found))
            query = target_of(self._path, labelSelector=label, limit=limit, continue_=after)
            status, page = await self._ask("GET", query, {410})
            if status == HTTPStatus.GONE:  # the server has forgotten the first page's moment
                found, after = [], None
                continue
            found += page["items"]
            after = page["metadata"].get("continue") or None
            if after is None or (count_max is not None and len(found) >= count_max):
                return found

    async def _ask(
        self,
        method: str,
        target: str,
        expected: Collection[int],
        body: Mapping[str, Any] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """Return status and content of an answer that is a success, or *expected*."""
        try:
            answer = await self._transport.request(
                method,
                self._url,
                target,
                headers=[JSON_HEADER],
                body=[] if body is None else [json.dumps(body).encode()],
                timeout=REQUEST_SECONDS,
            )
        except ErucaError as error:
            raise _unavailable(f"{self._url}: {error.detail}") from error
        try:
            content: dict[str, Any] = json.loads(answer.body)
        except ValueError:
            content = {}
        if answer.status not in (HTTPStatus.OK, HTTPStatus.CREATED, *expected):
            said = str(content.get("message", ""))[:_SHOWN_SIZE]
            raise _unavailable(f"{self._url}: HTTP status {answer.status}: {said}")
        return answer.status, content


def _unreadable(file: Path, error: OSError) -> ArbiterUnavailableError:
    return _unavailable(f"{file}: {error.strerror or error}")


def _unavailable(why: str) -> ArbiterUnavailableError:
    return ArbiterUnavailableError(
        f"the Kubernetes API cannot be used: {why}",
        fix=_FIX,
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
