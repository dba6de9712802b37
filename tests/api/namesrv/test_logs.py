"""The name server's log tells its operator when a broker comes and when it goes, once each."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca_namesrv.app import create_app
from eruca_namesrv.settings import NamesrvSettings
from support.clocks import ManualClock
from support.services import client_of

pytestmark = pytest.mark.anyio

REGISTRATION = {
    "cluster": "c",
    "urls": {"default": "http://10.0.0.1:10911"},
    "store_host": "10.0.0.1:10911",
    "data_version": 1,
    "topics": [],
    "expiry_seconds": 20,
}


async def test_brokers_that_come_and_go_are_told_once(tmp_path: Path) -> None:
    clock = ManualClock()
    app = create_app(NamesrvSettings(kv_file=tmp_path / "kv.json"), clock)
    async with client_of(app) as client:
        with capture_logs() as logs:
            for name in ("broker-a", "broker-b", "broker-a"):
                answer = await client.put(f"/v1/brokers/{name}/0", json=REGISTRATION)
                assert answer.status_code == 200, answer.text
            await client.delete("/v1/brokers/broker-b/0")
            clock.advance(21)
            for _ in range(2):
                await client.get("/v1/brokers")

    told = [(line["event"], line["broker"], line["log_level"]) for line in logs]
    assert told == [
        ("broker registered", "broker-a/0", "info"),
        ("broker registered", "broker-b/0", "info"),
        ("broker unregistered", "broker-b/0", "info"),
        ("broker expired", "broker-a/0", "warning"),
    ]
