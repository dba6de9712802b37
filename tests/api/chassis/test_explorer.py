"""The explorer works without a network: all that it loads and calls is named in its policy."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator

import httpx
import pytest

from eruca_chassis.app import ServiceApp
from eruca_chassis.explorer.routes import Explored, ExploredServices
from support.services import client_of

pytestmark = pytest.mark.anyio

SEVERAL = ExploredServices(
    [Explored("one", ""), Explored("</script><script>", "http://127.0.0.1:7001")],
    note="The third is away.",
)


async def several() -> ExploredServices:
    return SEVERAL


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = ServiceApp(title="A <b>bold</b> name", summary="", description="", version="1")
    async with client_of(app) as client:
        yield client


@pytest.fixture
async def client_of_several() -> AsyncIterator[httpx.AsyncClient]:
    app = ServiceApp(title="All", summary="", description="", version="1", explored=several)
    async with client_of(app) as client:
        yield client


def policy_of(answer: httpx.Response) -> dict[str, str]:
    parts = answer.headers["content-security-policy"].split("; ")
    return dict(part.split(" ", 1) for part in parts)


def explored_on(answer: httpx.Response) -> object:
    [data] = re.findall(r'type="application/json">(.*?)</script>', answer.text)
    return json.loads(data)


async def test_a_browser_is_led_to_the_page_and_nobody_else(client: httpx.AsyncClient) -> None:
    browser = await client.get("/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    other = await client.get("/")

    assert (browser.status_code, browser.headers["location"]) == (307, "docs")
    assert (other.status_code, other.json()["code"]) == (404, "not-found")


async def test_every_file_of_the_page_is_served_here(client: httpx.AsyncClient) -> None:
    page = (await client.get("/docs")).text

    files = re.findall(r'(?:src|href)="(docs/[^"]*)"', page)
    assert len(files) == 5
    for file in files:
        answer = await client.get(f"/{file}")
        assert answer.status_code == 200
        assert answer.content
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_the_policy_allows_no_other_origin_and_no_inline_script(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get("/docs")

    policy = policy_of(answer)
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert not re.search(r"<script(?![^>]*(?:src=|application/json))", answer.text)
    assert "http" not in answer.text.replace("http-equiv", "")


async def test_the_script_asks_no_validator(client: httpx.AsyncClient) -> None:
    assert "validatorUrl: null" in (await client.get("/docs/explorer.js")).text


async def test_a_service_shows_itself_unless_told_otherwise(client: httpx.AsyncClient) -> None:
    explored = explored_on(await client.get("/docs"))

    assert explored == {"services": [{"name": "A <b>bold</b> name", "url": ""}], "note": ""}


async def test_a_title_is_text_and_not_markup(client: httpx.AsyncClient) -> None:
    assert "<title>A &lt;b&gt;bold&lt;/b&gt; name</title>" in (await client.get("/docs")).text


async def test_a_page_may_call_the_services_it_shows_and_no_others(
    client_of_several: httpx.AsyncClient,
) -> None:
    answer = await client_of_several.get("/docs")

    assert policy_of(answer)["connect-src"] == "'self' http://127.0.0.1:7001"
    assert explored_on(answer) == {
        "services": [service._asdict() for service in SEVERAL.services],
        "note": SEVERAL.note,
    }
    assert "</script><script>" not in answer.text


async def test_a_page_is_rendered_each_time_and_its_files_are_kept(
    client: httpx.AsyncClient,
) -> None:
    page = await client.get("/docs")
    file = await client.get("/docs/explorer.js")

    assert page.headers["cache-control"] == "no-store"
    assert "immutable" in file.headers["cache-control"]
    assert re.search(r'src="docs/explorer\.js\?[0-9a-f]{12}"', page.text)


@pytest.mark.parametrize(
    "range_", ["bytes=9-1", "bytes=99999999-", "bytes", "lines=1-2", "bytes=0-1"]
)
async def test_a_file_is_sent_whole_whatever_range_is_asked_for(
    client: httpx.AsyncClient, range_: str
) -> None:
    whole = await client.get("/docs/explorer.js")

    answer = await client.get("/docs/explorer.js", headers={"range": range_})

    assert (answer.status_code, answer.content) == (200, whole.content)
    assert answer.headers["accept-ranges"] == "none"
