"""The health check of the images, beside a service that is ready, not ready, or away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eruca_chassis.app import ServiceApp
from eruca_chassis.healthcheck import main
from eruca_chassis.running.settings import ServiceSettings
from support.authority import Authority, Pair
from support.services import serving

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def running(**settings: object) -> AsyncIterator[tuple[ServiceApp, str]]:
    """Yield a service that is ready, and its port."""

    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        app.open_routes()
        app.readiness.ready()
        yield

    app = ServiceApp(title="T", summary="", description="", version="1", lifespan=lifespan)
    given = ServiceSettings(port=0, **settings)  # type: ignore[arg-type] # of each their own
    async with serving(app, given) as (_, (_, port)):
        yield app, str(port)


async def check(port: str, environment: Mapping[str, str] | None = None) -> int:
    return await asyncio.to_thread(main, ["ERUCA_T", port], environment or {})


async def test_a_service_that_is_ready_is_healthy() -> None:
    async with running() as (_, port):
        assert await check(port) == 0
        assert await check("1", {"ERUCA_T_PORT": port, "ERUCA_T_HOST": "0.0.0.0"}) == 0


async def test_a_service_that_is_not_ready_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    async with running() as (app, port):
        app.readiness.not_ready("the store is away")

        assert await check(port) == 1
    assert "503 the store is away\n" in capsys.readouterr().out


async def test_a_service_that_does_not_answer_is_unhealthy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with running() as (_, port):
        pass

    assert await check(port) == 1
    assert f"no answer from 127.0.0.1:{port}: " in capsys.readouterr().out


async def test_the_service_s_own_certificate_is_trusted_whatever_its_names(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("mq.example")
    async with running(**tls(pair)) as (_, port):
        assert await check(port, {"ERUCA_T_TLS_CERT_FILE": str(pair.cert)}) == 0
        other = authority.pair("mq.example", file="other")
        assert await check(port, {"ERUCA_T_TLS_CERT_FILE": str(other.cert)}) == 1


async def test_a_service_that_requires_certificates_is_shown_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, own = authority.pair("mq.example"), authority.pair("client.example", file="client")
    environment = {"ERUCA_T_TLS_CERT_FILE": str(pair.cert)}
    shown = {"ERUCA_TLS_CERT_FILE": str(own.cert), "ERUCA_TLS_KEY_FILE": str(own.key)}
    async with running(**tls(pair), tls_client_ca_file=authority.ca_file) as (_, port):
        assert await check(port, environment) == 1
        assert await check(port, environment | shown) == 0


def tls(pair: Pair) -> dict[str, Path]:
    return {"tls_cert_file": pair.cert, "tls_key_file": pair.key}


@pytest.mark.parametrize(
    ("arguments", "environment", "fault"),
    [
        (["ERUCA_T"], {}, "expected 2"),
        (["ERUCA_T", "port"], {}, "'port'"),
        (["ERUCA_T", "1"], {"ERUCA_T_LISTEN": "unix:/t.sock"}, "ERUCA_T_LISTEN is set"),
        (["ERUCA_T", "1"], {"ERUCA_T_TLS_CERT_FILE": "/none.pem"}, "No such file"),
    ],
)
async def test_what_cannot_be_checked_is_told(
    arguments: list[str],
    environment: dict[str, str],
    fault: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(arguments, environment) == 2
    assert fault in capsys.readouterr().out
