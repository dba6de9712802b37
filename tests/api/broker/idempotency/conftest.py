"""A broker whose clock the test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca_chassis.app import ServiceApp
from support.brokers import open_broker
from support.clocks import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()  # 2023-11-14T22:13:20Z


@pytest.fixture
async def app(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ServiceApp]:
    async with open_broker(tmp_path / "store", clock) as app:
        yield app
