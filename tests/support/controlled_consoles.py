"""A console whose rules are a controller's, both as processes, and browsers that log in there."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from eruca_deploy.ports import free_ports
from support.command_line import Eruca
from support.forked import started_by_fork
from support.waiting import wait_until

ANN: Final = "user:ann"


class Controlled(NamedTuple):
    """A console whose rules are a controller's."""

    console: str
    administrator_key: str


@contextmanager
def controlled_console(directory: Path) -> Iterator[Controlled]:
    """Yield a controller and a console whose files are in *directory*; ann is administrator."""
    Eruca("http://127.0.0.1:1")("auth", "init", str(directory / "auth"), f"--administrator={ANN}")
    [port] = free_ports("127.0.0.1", 1)
    url = f"http://127.0.0.1:{port}"
    controller = {
        "ERUCA_AUTH": "controller",
        "ERUCA_AUTH_FILE": str(directory / "auth" / "rules.toml"),
        "ERUCA_CONTROLLER_STORE": "file",
        "ERUCA_CONTROLLER_FILE": str(directory / "groups.json"),
        "ERUCA_CONTROLLER_POLICY_FILE": str(directory / "policy.json"),
        "ERUCA_CONTROLLER_PORT": str(port),
    }
    console = {
        "ERUCA_AUTH": "controller",
        "ERUCA_CONTROLLER_URLS": url,
        "ERUCA_API_KEY_FILE": str(directory / "auth" / "console.key"),
        "ERUCA_CONSOLE_PORT": "0",
        "ERUCA_CONSOLE_NAMESRV_URLS": "http://127.0.0.1:1",
        "ERUCA_CONSOLE_POLICY_FILE": str(directory / "console-policy.json"),
    }
    with started_by_fork("eruca_controller", controller) as first:
        first.wait_until_listening()
        wait_until(lambda: httpx.get(f"{url}/readyz").status_code == httpx.codes.OK)
        with started_by_fork("eruca_console", console) as second:
            second.wait_until_listening()
            wait_until(lambda: httpx.get(f"{second.url}/readyz").status_code == httpx.codes.OK)
            key = (directory / "auth" / "administrator.key").read_text().strip()
            yield Controlled(second.url, key)


@asynccontextmanager
async def browsing_as(controlled: Controlled, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a browser in which the holder of *key* has logged in."""
    async with httpx.AsyncClient(
        base_url=controlled.console, headers={"accept": "text/html"}, trust_env=False
    ) as client:
        await log_in(client, key)
        yield client


async def log_in(client: httpx.AsyncClient, key: str) -> httpx.Response:
    """Log in with *key*; return the answer."""
    token = field(await client.get("/login"), "csrf")
    return await client.post("/login", data={"csrf": token, "key": key, "next": "/keys"})


def field(page: httpx.Response, name: str) -> str:
    """Return the value of the first hidden field *name* of a page."""
    found = re.search(rf'name="{name}" value="([^"]*)"', page.text)
    assert found is not None, page.text
    return found[1]


async def previewed(client: httpx.AsyncClient, **wish: str) -> httpx.Response:
    """Return the preview of a change of the rules."""
    page = await client.get("/rules/change", params={**wish, "step": "preview"})
    assert page.status_code == httpx.codes.OK, page.text
    return page


async def changed(client: httpx.AsyncClient, typed: str = "", **wish: str) -> httpx.Response:
    """Preview a change, and send the form of the preview."""
    page = await previewed(client, **wish)
    form = {
        html.unescape(name): html.unescape(value)
        for name, value in re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', act(page))
    }
    return await client.post(
        "/rules/change", data={**form, "reason": "it is tested", "typed": typed}
    )


def act(page: httpx.Response) -> str:
    """Return the form that makes the change; empty: the page offers none."""
    found = re.search(r'<form class="stack act".*?</form>', page.text, re.DOTALL)
    return "" if found is None else found[0]
