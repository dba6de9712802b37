"""A pull consumer's client whose broker is a function."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import eruca
from eruca.aio.pulling import broker_fetcher
from support.pulled_queues import Queues
from support.scripted_transport import ScriptedTransport


@pytest.fixture
def queues() -> Queues:
    return Queues()


@pytest.fixture
def hot(queues: Queues) -> ScriptedTransport:
    return ScriptedTransport(queues.pull)


@pytest.fixture
async def client(queues: Queues, hot: ScriptedTransport) -> AsyncIterator[eruca.AsyncClient]:
    rest = ScriptedTransport(queues.rest)
    async with eruca.AsyncClient(
        "http://namesrv", timeout_seconds=0.5, hot_transport=hot, transport=rest
    ) as client:
        yield client


@pytest.fixture(autouse=True)
def no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_fetcher, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(broker_fetcher, "PAUSE_SECONDS_MAX", 0.01)
