"""A controller is found through the name servers for as long as it runs."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from eruca.contract.names import CONTROLLERS_NAMESPACE
from eruca_namesrv.app import create_app
from eruca_namesrv.settings import NamesrvSettings
from support.controllers import controller
from support.services import serving
from support.waiting import until_told

pytestmark = pytest.mark.anyio


async def test_its_url_is_announced_under_a_name_made_of_its_address(tmp_path: Path) -> None:
    settings = NamesrvSettings(port=0, settle_seconds=0)
    async with (
        serving(create_app(settings), settings) as (_, (host, port)),
        httpx.AsyncClient(base_url=f"http://{host}:{port}/v1/kv", trust_env=False) as namesrv,
    ):

        async def announced() -> dict[str, str]:
            answer = await namesrv.get(f"/{CONTROLLERS_NAMESPACE}")
            entries: dict[str, str] = answer.json()["entries"]
            return entries

        chosen = {
            "store": "file",
            "file": tmp_path / "groups.json",
            "namesrv_urls": f"http://{host}:{port}",
            "advertised_url": "http://mq-c.example:9878",
        }
        async with controller(chosen):
            entries = await until_told(announced)
            assert entries == {"controller-mq-c.example-9878": "http://mq-c.example:9878"}

        assert await announced() == {}
