"""A store of rules restored from an older copy: a key that was revoked since stays revoked."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
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
from support.etcd import etcd_server
from support.policies import ANN, policy_change
from support.postgres import embedded_server, kill_server
from support.rules import bearer, key_of, write_rules
from support.services import serving
from support.waiting import until_told

pytestmark = pytest.mark.anyio

BROKER: Final = "service:broker"
SHOP: Final = "user:shop"
SHOP_RULE: Final = {"allow": ["produce"], "on": ["topic:*"], "to": [SHOP]}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Store:
    """A store whose files can be copied, and replaced by the copy, while it is down."""

    settings: dict[str, str]
    directory: Path
    down: Callable[[], None]
    up: Callable[[], None]

    def copy(self) -> None:
        """Keep a copy of what it has now."""
        self._while_down(self.directory, self._kept)

    def restore(self) -> None:
        """Replace what it has by the copy."""
        self._while_down(self._kept, self.directory)

    @property
    def _kept(self) -> Path:
        return self.directory.with_name("kept")

    def _while_down(self, source: Path, target: Path) -> None:
        self.down()
        # It keeps owners and modes: PostgreSQL belongs to another user than root.
        subprocess.run(["rm", "-rf", str(target)], check=True)
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)
        self.up()


@contextmanager
def postgres() -> Iterator[Store]:
    with embedded_server() as server:
        yield Store(
            {"store": "postgres", "DATABASE_URL": server.url},
            server._directory,
            lambda: kill_server(server),
            lambda: server.start(),
        )


@contextmanager
def etcd() -> Iterator[Store]:
    with etcd_server() as server:
        settings = {"store": "etcd", "etcd_urls": server.url}
        yield Store(settings, server._log.parent / "data", server.stop, server.start)


@pytest.fixture(params=[postgres, etcd], ids=["postgres", "etcd"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with request.param() as made:
        yield made


@asynccontextmanager
async def running(app: Any, settings: Any) -> AsyncIterator[httpx.AsyncClient]:  # noqa: ANN401
    async with (
        serving(app, settings) as (_, (host, port)),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=60) as client,
    ):
        await until_told(lambda: client.get("/readyz"), lambda answer: answer.status_code == 200)
        yield client


@asynccontextmanager
async def controller(store: Store, tmp_path: Path, name: str) -> AsyncIterator[httpx.AsyncClient]:
    first = write_rules(
        tmp_path / "first.toml",
        SHOP_RULE,
        roles={"administrator": [ANN], "broker": [BROKER]},
    )
    settings = ControllerSettings.model_validate(
        {
            **store.settings,
            "policy_file": tmp_path / name / "kept.json",
            "ERUCA_AUTH": "controller",
            "ERUCA_AUTH_FILE": str(first),
        }
    )
    async with running(create_controller(settings), settings) as client:
        yield client


@asynccontextmanager
async def broker(tmp_path: Path, *urls: str) -> AsyncIterator[httpx.AsyncClient]:
    settings = BrokerSettings.model_validate(
        {
            "store_dir": tmp_path / "store",
            "segment_bytes": 16 * 1024**2,
            "namesrv_urls": "",
            "ERUCA_AUTH": "controller",
            "ERUCA_CONTROLLER_URLS": ";".join(urls),
        }
    )
    async with running(create_broker(settings), settings) as client:
        yield client


async def status(client: httpx.AsyncClient) -> int:
    """Return the answer to the shop's key: 403 is a known caller without that right."""
    return (await client.get("/v1/access", headers=bearer(SHOP))).status_code


async def fault(client: httpx.AsyncClient) -> str | None:
    answer = await client.get("/v1/access", headers=bearer(ANN))
    said: str | None = answer.json()["fault"] if answer.is_success else "it does not say"
    return said


def is_older(said: str | None) -> bool:
    """Return whether a fault is about older rules, and not about a store that is away."""
    return said is not None and "already has" in said


async def change(client: httpx.AsyncClient, above: int, *keys: str) -> int:
    current = (await client.get("/v1/policy", headers=bearer(ANN))).json()
    answer = await client.put(
        f"/v1/policy?above={above}",
        json=policy_change(SHOP_RULE, roles={"broker": [BROKER]}, keys=keys),
        headers={**bearer(ANN), "if-match": f'"{current["version"]}"'},
    )
    assert answer.status_code == 200, answer.text
    return int(answer.json()["number"])


async def test_a_restored_store_does_not_make_a_revoked_key_valid(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ERUCA_API_KEY", key_of(BROKER))
    async with controller(store, tmp_path, "old") as old:
        async with broker(tmp_path, str(old.base_url)) as mq:
            await until_told(lambda: status(mq), (403).__eq__)
            await asyncio.to_thread(store.copy)
            await until_told(lambda: old.get("/readyz"), lambda answer: answer.is_success)
            number = await change(old, 0, ANN, BROKER)  # it revokes the shop's key
            for service in (mq, old):
                await until_told(partial(status, service), (401).__eq__)

            await asyncio.to_thread(store.restore)

            await until_told(lambda: fault(old), is_older)
            for service in (mq, old):  # a controller that runs knows better than its store
                assert await status(service) == 401
        async with (
            controller(store, tmp_path, "new") as new,  # one that has never had any rules
            broker(tmp_path, str(new.base_url)) as mq,  # which has its copy only
        ):
            await until_told(lambda: fault(mq), is_older)
            assert await status(mq) == 401
            await change(new, number, ANN, BROKER)
            await until_told(lambda: fault(mq), lambda said: said is None)
            for service in (mq, new, old):
                await until_told(partial(status, service), (401).__eq__)
            await until_told(lambda: fault(old), lambda said: said is None)
