"""Every service knows the hosts that its own settings name, and no other."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from eruca_broker.app import create_app as create_broker
from eruca_broker.settings import BrokerSettings
from eruca_chassis.app import ServiceApp
from eruca_console.app import create_app as create_console
from eruca_console.settings import ConsoleSettings
from eruca_controller.app import create_app as create_controller
from eruca_controller.settings import ControllerSettings
from eruca_namesrv.app import create_app as create_namesrv
from eruca_namesrv.settings import NamesrvSettings
from eruca_query.app import create_app as create_query
from eruca_query.settings import QuerySettings
from eruca_txn_checker.app import create_app as create_txn_checker
from eruca_txn_checker.settings import TxnCheckerSettings

pytestmark = pytest.mark.anyio

CREATE: dict[str, Callable[[], ServiceApp]] = {
    "NAMESRV": lambda: create_namesrv(NamesrvSettings.load()),
    "BROKER": lambda: create_broker(BrokerSettings.load()),
    "TXN_CHECKER": lambda: create_txn_checker(TxnCheckerSettings.load()),
    "QUERY": lambda: create_query(QuerySettings.load()),
    "CONSOLE": lambda: create_console(ConsoleSettings.load()),
    "CONTROLLER": lambda: create_controller(ControllerSettings.load()),
}
ADVERTISED = {
    "BROKER": "http://mq-a.example:10911;inside=http://inside-a:10911",
    "TXN_CHECKER": "http://mq-a.example:10921",
    "QUERY": "http://mq-a.example:10931",
    "CONSOLE": "https://mq-a.example",
    "CONTROLLER": "http://mq-a.example:9878",
}


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/docs", "/v1/status"])
@pytest.mark.parametrize("service", CREATE)
async def test_another_host_is_refused_whatever_is_asked_for(service: str, path: str) -> None:
    transport = httpx.ASGITransport(CREATE[service]())
    async with httpx.AsyncClient(transport=transport, base_url="http://evil.example") as client:
        refused = await client.get(path)

    assert (refused.status_code, refused.json()["code"]) == (421, "unknown-host")
    assert f"ERUCA_{service}_ALLOWED_HOSTS" in refused.json()["fix"]


@pytest.mark.parametrize("service", CREATE)
async def test_hosts_that_are_announced_listened_on_or_configured_are_known(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = ["127.0.0.1", "localhost", "listener", "proxy.example", "a.pods.example"]
    monkeypatch.setenv(f"ERUCA_{service}_HOST", "listener")
    monkeypatch.setenv("ERUCA_AUTH", "open")
    monkeypatch.setenv(f"ERUCA_{service}_ALLOWED_HOSTS", "proxy.example;*.pods.example")
    if service in ADVERTISED:
        monkeypatch.setenv(f"ERUCA_{service}_ADVERTISED_URL", ADVERTISED[service])
        hosts.append("mq-a.example")
    if service == "BROKER":
        hosts.append("inside-a")
    transport = httpx.ASGITransport(CREATE[service]())
    async with httpx.AsyncClient(transport=transport) as client:
        for host in hosts:
            answer = await client.get(f"http://{host}:1/healthz")

            assert answer.status_code == 200, host
