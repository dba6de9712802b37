"""A name server that has settled, and whose clock the test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from eruca_chassis.app import ServiceApp
from eruca_namesrv.app import create_app
from eruca_namesrv.settings import NamesrvSettings
from support.clocks import ManualClock
from support.services import client_of


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(clock: ManualClock, tmp_path: Path) -> ServiceApp:
    settings = NamesrvSettings(
        kv_file=tmp_path / "kv.json", held_requests_max=3, returns_order_config=True
    )
    return create_app(settings, clock)


@pytest.fixture
async def client(app: ServiceApp, clock: ManualClock) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as client:
        clock.advance(NamesrvSettings().settle_seconds)
        yield client
