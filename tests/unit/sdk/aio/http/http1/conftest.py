"""The small HTTP client on both event loops."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eruca.aio.http.http1 import Http1Transport


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"], scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Run every test on both event loops: their transports differ."""
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
async def client() -> AsyncIterator[Http1Transport]:
    transport = Http1Transport()
    yield transport
    await transport.close()
