"""The explorer works without a network: everything it loads is its own, and its policy says so."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from eruca_chassis.app import ServiceApp
from support.services import client_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = ServiceApp(title="A <b>bold</b> name", summary="", description="", version="1")
    async with client_of(app) as client:
        yield client


async def test_every_file_of_the_page_is_served_here(client: httpx.AsyncClient) -> None:
    page = (await client.get("/docs")).text

    files = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(files) == 4
    for file in files:
        answer = await client.get(f"/{file}")
        assert answer.status_code == 200
        assert answer.content
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_the_policy_allows_no_other_origin_and_no_inline_script(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get("/docs")

    policy = dict(
        part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert not re.search(r"<script(?![^>]*src=)", answer.text)
    assert "http" not in answer.text.replace("http-equiv", "")


async def test_the_script_shows_this_service_and_asks_no_validator(
    client: httpx.AsyncClient,
) -> None:
    script = (await client.get("/docs/explorer.js")).text

    assert '"url": "openapi.json"' in script
    assert '"validatorUrl": null' in script


async def test_a_title_is_text_and_not_markup(client: httpx.AsyncClient) -> None:
    assert "<title>A &lt;b&gt;bold&lt;/b&gt; name</title>" in (await client.get("/docs")).text
