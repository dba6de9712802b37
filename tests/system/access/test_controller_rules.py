"""Rules of the controllers at other services: followed at once, kept, and never older."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from eruca_broker.app import create_app as create_broker
from eruca_broker.settings import BrokerSettings
from eruca_controller.app import create_app as create_controller
from eruca_controller.settings import ControllerSettings
from eruca_namesrv.app import create_app as create_namesrv
from eruca_namesrv.settings import NamesrvSettings
from support.policies import ANN, policy_change
from support.rules import bearer, key_of, write_rules
from support.services import serving
from support.waiting import until_told

pytestmark = pytest.mark.anyio

BROKER: Final = "service:broker"
SHOP: Final = "user:shop"
SHOP_RULE: Final = {"allow": ["produce", "consume"], "on": ["topic:orders"], "to": [SHOP]}
REVOKED_SECONDS: Final = 2.0
KEYS: Final = (ANN, BROKER, SHOP)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Service:
    """A service under test."""

    client: httpx.AsyncClient

    async def status_of(self, principal: str, path: str) -> int:
        return (await self.client.get(path, headers=bearer(principal))).status_code

    async def metrics(self) -> str:
        return (await self.client.get("/metrics", headers=bearer(ANN))).text


@asynccontextmanager
async def running(app: Any, settings: Any, port: int = 0) -> AsyncIterator[Service]:  # noqa: ANN401
    async with (
        serving(app, settings, port=port) as (_, (host, bound)),
        httpx.AsyncClient(base_url=f"http://{host}:{bound}", timeout=60) as client,
    ):
        yield Service(client)


@asynccontextmanager
async def controller(tmp_path: Path, port: int = 0) -> AsyncIterator[Service]:
    first = write_rules(
        tmp_path / "first.toml",
        SHOP_RULE,
        roles={"administrator": [ANN], "broker": [BROKER]},
    )
    settings = ControllerSettings.model_validate(
        {
            "store": "file",
            "file": tmp_path / "controller" / "groups.json",
            "policy_file": tmp_path / "controller" / "kept.json",
            "ERUCA_AUTH": "controller",
            "ERUCA_AUTH_FILE": str(first),
        }
    )
    async with running(create_controller(settings), settings, port) as service:
        await until_told(
            lambda: service.client.get("/readyz"), lambda answer: answer.status_code == 200
        )
        yield service


def followed(service: Service) -> dict[str, str]:
    return {"ERUCA_AUTH": "controller", "ERUCA_CONTROLLER_URLS": str(service.client.base_url)}


@asynccontextmanager
async def broker(tmp_path: Path, follows: dict[str, str]) -> AsyncIterator[Service]:
    settings = BrokerSettings.model_validate(
        {
            "store_dir": tmp_path / "store",
            "segment_bytes": 16 * 1024**2,
            "namesrv_urls": "",
            **follows,
        }
    )
    async with running(create_broker(settings), settings) as service:
        yield service


@pytest.fixture(autouse=True)
def _own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERUCA_API_KEY", key_of(BROKER))


async def change(arbiter: Service, *rules: dict[str, Any], **options: Any) -> int:  # noqa: ANN401
    """Change the policy; return its number."""
    current = (await arbiter.client.get("/v1/policy", headers=bearer(ANN))).json()
    above = options.pop("above", 0)
    answer = await arbiter.client.put(
        f"/v1/policy?above={above}",
        json=policy_change(*rules, roles={"broker": [BROKER]}, keys=options.get("keys", KEYS)),
        headers={**bearer(ANN), "if-match": f'"{current["version"]}"'},
    )
    assert answer.status_code == 200, answer.text
    return int(answer.json()["number"])


async def test_a_revocation_at_the_controller_is_effective_everywhere(tmp_path: Path) -> None:
    namesrv_settings: dict[str, Any] = {
        "kv_file": tmp_path / "kv.json",
        "settle_seconds": 0,
        "policy_file": tmp_path / "namesrv" / "policy.json",
    }
    async with controller(tmp_path) as arbiter:
        follows = followed(arbiter)
        settings = NamesrvSettings.model_validate({**namesrv_settings, **follows})
        async with (
            broker(tmp_path, follows) as mq,
            running(create_namesrv(settings), settings) as names,
        ):
            for service in (mq, names):
                await until_told(partial(service.client.get, "/readyz"), is_ok)
            made = await mq.client.put("/v1/topics/orders", json={}, headers=bearer(ANN))
            assert made.status_code == 201, made.text
            held = asyncio.create_task(
                mq.client.get(
                    "/v1/topics/orders/queues/0/messages?offset=0&wait_seconds=30",
                    headers=bearer(SHOP),
                )
            )
            assert await mq.status_of(SHOP, "/v1/topics/orders") == 200
            assert await names.status_of(SHOP, "/v1/brokers") == 200
            begun = time.monotonic()
            await change(arbiter, SHOP_RULE, keys=(ANN, BROKER))
            for service, path in ((mq, "/v1/topics/orders"), (names, "/v1/brokers")):
                await until_told(
                    partial(service.status_of, SHOP, path), lambda status: status == 401
                )
            assert (await held).status_code == 401
            assert time.monotonic() - begun < REVOKED_SECONDS


async def test_rules_are_kept_while_no_controller_answers(tmp_path: Path) -> None:
    async with controller(tmp_path) as arbiter:
        follows = followed(arbiter)
        port = arbiter.client.base_url.port
        assert port is not None
        async with broker(tmp_path, follows) as mq:
            await until_told(lambda: mq.client.get("/readyz"), is_ok)
            await mq.client.put("/v1/topics/orders", json={}, headers=bearer(ANN))
    kept = tmp_path / "store" / "config" / "policy.json"
    assert kept.stat().st_mode & 0o007 == 0
    async with broker(tmp_path, follows) as mq:
        await until_told(lambda: mq.client.get("/readyz"), is_ok)
        assert await mq.status_of(SHOP, "/v1/topics/orders") == 200
        assert await mq.status_of("user:nobody", "/v1/topics/orders") == 401
        await until_told(mq.metrics, lambda text: "eruca_access_rules_stale 1.0" in text)
        async with controller(tmp_path, port) as arbiter:
            await change(arbiter)
            await until_told(
                lambda: mq.status_of(SHOP, "/v1/topics/orders"), lambda status: status == 403
            )
            await until_told(mq.metrics, lambda text: "eruca_access_rules_stale 0.0" in text)


async def test_a_service_that_never_had_rules_admits_nobody(tmp_path: Path) -> None:
    follows = {"ERUCA_AUTH": "controller", "ERUCA_CONTROLLER_URLS": "http://127.0.0.1:1"}
    async with broker(tmp_path, follows) as mq:
        ready = await mq.client.get("/readyz")
        assert (ready.status_code, ready.json()["code"]) == (503, "not-ready")
        assert "never had rules" in ready.json()["detail"]
        for headers in ({}, bearer(ANN)):
            sent = await mq.client.post(
                "/v1/topics/orders/messages", json={"body": {"text": "a"}}, headers=headers
            )
            assert (sent.status_code, sent.json()["code"]) == (503, "not-ready")


async def test_a_damaged_copy_counts_as_none(tmp_path: Path) -> None:
    async with controller(tmp_path) as arbiter:
        follows = followed(arbiter)
        async with broker(tmp_path, follows) as mq:
            await until_told(lambda: mq.client.get("/readyz"), is_ok)
    kept = tmp_path / "store" / "config" / "policy.json"
    content = json.loads(kept.read_bytes())
    content["policy"]["roles"]["administrator"] = ["user:mallory"]
    kept.write_text(json.dumps(content))
    async with broker(tmp_path, follows) as mq:
        assert (await mq.client.get("/readyz")).status_code == 503


async def test_older_rules_are_refused_until_they_are_applied_again(tmp_path: Path) -> None:
    store = tmp_path / "controller" / "policy.jsonl"
    async with controller(tmp_path) as arbiter:
        follows = followed(arbiter)
        port = arbiter.client.base_url.port
        assert port is not None
        async with broker(tmp_path, follows) as mq:
            await until_told(lambda: mq.client.get("/readyz"), is_ok)
            await mq.client.put("/v1/topics/orders", json={}, headers=bearer(ANN))
            older = store.read_bytes()
            number = await change(arbiter)  # it takes the shop's rights
            await until_told(
                lambda: mq.status_of(SHOP, "/v1/topics/orders"), lambda status: status == 403
            )
    store.write_bytes(older)
    (tmp_path / "controller" / "kept.json").unlink()  # a new machine
    async with controller(tmp_path, port) as arbiter, broker(tmp_path, follows) as mq:
        await until_told(mq.metrics, lambda text: "eruca_access_rules_stale 1.0" in text)
        assert await mq.status_of(SHOP, "/v1/topics/orders") == 403
        await change(arbiter, SHOP_RULE, above=number)
        await until_told(
            lambda: mq.status_of(SHOP, "/v1/topics/orders"), lambda status: status == 200
        )


def is_ok(answer: httpx.Response) -> bool:
    return answer.status_code == 200
