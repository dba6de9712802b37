"""A broker with rules, for tests of who may do what there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from eruca_broker.app import create_app
from eruca_broker.settings import BrokerSettings
from support.rules import bearer, write_rules
from support.services import serving

OWNER: Final = "user:owner"
SHOP: Final = "user:shop"
BILLING: Final = "service:billing"
PRODUCES: Final = {"allow": ["produce"], "on": ["topic:orders"], "to": [SHOP]}
CONSUMES: Final = {
    "allow": ["consume"],
    "on": ["topic:orders", "group:billing"],
    "to": [BILLING],
}
OTHERS: Final = [SHOP, BILLING]


class Broker:
    """A broker with rules, and their file."""

    def __init__(self, client: httpx.AsyncClient, address: tuple[str, int], path: Path) -> None:
        self.client = client
        self.address = address
        self.path = path

    def allow(self, *rules: dict[str, Any], **options: Any) -> None:  # noqa: ANN401
        write_rules(
            self.path,
            *rules,
            roles={"administrator": [OWNER]},
            principals=OTHERS,
            **options,
        )

    async def call(
        self, principal: str, method: str, target: str, body: object = None
    ) -> httpx.Response:
        return await self.client.request(method, target, json=body, headers=bearer(principal))


@asynccontextmanager
async def broker_with(tmp_path: Path, *rules: dict[str, Any]) -> AsyncIterator[Broker]:
    path = write_rules(
        tmp_path / "rules.toml", *rules, roles={"administrator": [OWNER]}, principals=OTHERS
    )
    settings = BrokerSettings.model_validate(
        {
            "store_dir": tmp_path / "store",
            "segment_bytes": 16 * 1024**2,
            "ERUCA_AUTH_FILE": str(path),
            "namesrv_urls": "",
        }
    )
    async with (
        serving(create_app(settings), settings) as (_, address),
        httpx.AsyncClient(base_url=f"http://{address[0]}:{address[1]}", timeout=60) as client,
    ):
        broker = Broker(client, address, path)
        made = await broker.call(OWNER, "PUT", "/v1/topics/orders", {})
        assert made.status_code == 201, made.text
        yield broker


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one answer, and return its status and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None
    return int(head.split(b" ", 2)[1]), await reader.readexactly(int(length[1]))
