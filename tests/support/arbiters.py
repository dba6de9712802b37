"""An arbiter without a network: the controllers of one row, as a transport answers for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from eruca.aio.http.transport import HttpResponse, NotConnectedError
from eruca.contract.broker_groups import BrokerGroupPut
from eruca.contract.errors import (
    PROBLEM_MEDIA_TYPE,
    ErucaError,
    NotFoundError,
    PreconditionFailedError,
    TimeoutExpiredError,
)
from eruca.contract.records import Buffer


@dataclass
class ManualArbiter:
    """Controllers over one row; a test decides which of them answer.

    Attributes:
        down: URLs at which nobody listens.
        deaf: URLs whose requests are done, and whose answers are lost.
        deaf_count: Requests of which this is true, wherever they go.
    """

    row: dict[str, Any] | None = None
    version: int = 0
    down: set[str] = field(default_factory=set)
    deaf: set[str] = field(default_factory=set)
    deaf_count: int = 0
    asked: list[tuple[str, str]] = field(default_factory=list)  # method and URL

    async def request(
        self,
        method: str,
        url: str,
        target: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: Sequence[Buffer] = (),
        timeout: float,
    ) -> HttpResponse:
        """Answer one request."""
        self.asked.append((method, url))
        if url in self.down:
            raise NotConnectedError(f"{url}: refused")
        answer = self._answer(method, dict(headers), b"".join(body))
        is_lost, self.deaf_count = self.deaf_count > 0, max(self.deaf_count - 1, 0)
        if is_lost or url in self.deaf:
            raise TimeoutExpiredError(f"{url}: no answer")
        return answer

    async def close(self) -> None:
        """Nothing is open."""

    def _answer(self, method: str, headers: dict[str, str], body: bytes) -> HttpResponse:
        if method == "GET":
            if self.row is None:
                return _problem(NotFoundError("no such group"))
            if headers.get("if-none-match") == f'"{self.version}"':
                return HttpResponse(304, {}, b"")
            return self._row()
        expected = None if "if-none-match" in headers else headers["if-match"].strip('"')
        if expected != (None if self.row is None else str(self.version)):
            return _problem(PreconditionFailedError(f"the version is {self.version}"))
        self.put(BrokerGroupPut.model_validate_json(body))
        return self._row()

    def put(self, row: BrokerGroupPut) -> None:
        """Change the row."""
        self.row, self.version = row.model_dump(), self.version + 1

    def restored(self, row: BrokerGroupPut, version: int) -> None:
        """Go back in time: have an earlier row again, and its version."""
        assert version < self.version
        self.row, self.version = row.model_dump(), version

    def _row(self) -> HttpResponse:
        assert self.row is not None
        view = {
            **self.row,
            "broker_name": "broker-a",
            "version": str(self.version),
            "number": self.version,
            "changed_at": "2026-01-01T00:00:00Z",
        }
        headers = {"etag": f'"{self.version}"', "content-type": "application/json"}
        return HttpResponse(200, headers, json.dumps(view).encode())


def _problem(error: ErucaError) -> HttpResponse:
    headers = {"content-type": PROBLEM_MEDIA_TYPE}
    return HttpResponse(error.status, headers, json.dumps(error.problem("1")).encode())
