"""A probe never raises: what keeps it from an answer is its fault."""

from __future__ import annotations

import ssl

import pytest

from eruca.aio.http.clients import httpx_client
from eruca.cli.diagnosing.probes import ask
from eruca.contract.errors import ValidationError

pytestmark = pytest.mark.anyio


class Missing:
    """Credentials that cannot be had."""

    has_headers = True

    async def headers(self, url: str) -> list[tuple[str, str]]:
        raise ValidationError("the key file is missing", fix="make one")

    async def renew(self, refused: object) -> bool:
        raise AssertionError

    async def ssl_context(self) -> ssl.SSLContext:
        raise AssertionError


async def test_credentials_that_cannot_be_had_are_a_fault() -> None:
    async with httpx_client(Missing(), timeout=5) as client:
        probe = await ask(client, "http://127.0.0.1:1/readyz")

    assert (probe.answer, probe.fault, probe.fix) == (None, "the key file is missing", "make one")
