"""A broker with limits that tests reach, its clock, and a client of its deliveries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from eruca_chassis.app import ServiceApp
from support.brokers import open_broker
from support.clocks import ManualClock
from support.delivery_clients import DeliveryClient


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def app(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ServiceApp]:
    async with open_broker(
        tmp_path / "store", clock, unfinished_max=50, unfinished_total_max=60
    ) as app:
        yield app


@pytest.fixture
async def orders(client: httpx.AsyncClient) -> DeliveryClient:
    orders = DeliveryClient(client)
    await orders.create()
    return orders
