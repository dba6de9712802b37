"""A broker whose clock the tests set, and a client of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eruca_chassis.app import ServiceApp
from support.brokers import client_of, open_broker
from support.clocks import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def app(tmp_path: Path, clock: ManualClock) -> Any:  # noqa: ANN401 - an async generator
    async with open_broker(tmp_path, clock, transactions_max=8) as app:
        yield app


@pytest.fixture
async def client(app: ServiceApp) -> Any:  # noqa: ANN401
    async with client_of(app) as client:
        await client.put("/topics/payments", json={"read_queue_count": 2, "write_queue_count": 2})
        yield client
