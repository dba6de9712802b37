"""Pictures of the console's pages, for somebody who looks at them.

Run as a program it writes PNG files into a directory, one for each page, scheme, width and language
of a scene::

    .venv/bin/python tests/support/console_pictures.py /tmp/pictures full empty --language zh

The scenes: ``full``, a cluster with work; ``errors``, refusals of the same; ``rules``, rules at a
controller; ``empty``, a new cluster; ``away``, one of two brokers is away.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import eruca
from eruca.contract.recall_handles import RecallHandle, encode_recall_handle
from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE
from support.browser import Browser, Page, browsing, chromium
from support.console_tasks import shop
from support.controlled_consoles import browsing_as, changed, controlled_console
from support.waiting import until_told

WIDTHS: Final = {"wide": 1280, "narrow": 360}  # CSS pixels
SCHEMES: Final = ("light", "dark")
_HANDLE: Final = encode_recall_handle(RecallHandle("orders", "broker-a", 4_000_000_000_000, "late"))
_PATHS: Final = (
    *("/overview", "/brokers", "/brokers/broker-a", "/brokers/broker-a/switch"),
    *("/topics", "/topics/orders", "/topics/orders/volume", "/topics/orders/send"),
    *("/topic-settings", "/topic-settings?topic=orders&permission=r&step=preview"),
    *("/groups", "/groups/billing", "/groups/billing/as-of"),
    *("/groups/billing/reset", "/groups/billing/reset?topic=orders&to=earliest"),
    "/groups/billing/dead-letters",
    "/group-settings?group=billing&consume_enabled=no&step=preview",
    *("/messages", "/messages?topic=orders", "/scheduled", "/transactions", "/audit"),
    *("/access?principal=user:ann&right=produce&resource=topic:orders", "/rules", "/keys"),
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A console to look at.

    Attributes:
        url: Its address.
        paths: The pages, by the names of their pictures.
        cookies: Those of a session that is logged in.
    """

    url: str
    paths: Mapping[str, str]
    cookies: Mapping[str, str]


def _named(paths: Sequence[str]) -> dict[str, str]:
    return {re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")[:60]: path for path in paths}


@asynccontextmanager
async def _full() -> AsyncIterator[Scene]:
    async with shop() as one:
        async with one.client.producer() as producer:
            late = await producer.send(eruca.Message("orders", b"x", delay_seconds=3_600))
            assert late is not None
        found = await until_told(
            lambda: one.client.query.find("orders", key="17"), lambda page: page.messages
        )
        message = found.messages[0].offset_message_id
        [url] = one.cluster.console_urls
        more = {
            "message": f"/messages/{message}",
            "message-asked": f"/messages/{message}?group=mailer",
            "unfinished": "/groups/billing?unfinished=orders",
            "letters": "/groups/mailer/dead-letters",
            "as-of-known": "/groups/billing/as-of?broker=broker-a&log_offset=20000",
            "transaction": "/transactions/broker-a/order-99",
            "transaction-as-of": "/transactions/broker-a/order-99?log_offset=20000",
            "decision": "/transactions/broker-a/order-99/decision?outcome=commit",
            "login": "/login",
        }
        yield Scene(url, {**_named(_PATHS), **more}, {})


@asynccontextmanager
async def _errors() -> AsyncIterator[Scene]:
    async with LocalCluster(consoles=1, settings=SMALL_STORE) as cluster:
        [url] = cluster.console_urls
        paths = (
            *("/nowhere", "/topics/none", "/groups/none", "/brokers/none", "/messages?id=nonsense"),
            *("/topics?sort=colour", "/messages?topic=orders", f"/scheduled/{_HANDLE}"),
            *("/transactions/broker-a/none", "/transactions", "/topic-settings?permission=x"),
        )
        yield Scene(url, _named(paths), {})


@asynccontextmanager
async def _rules() -> AsyncIterator[Scene]:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        # A thread, because it runs commands, which have a loop of their own.
        begun = controlled_console(Path(directory))
        controlled = await asyncio.to_thread(stack.enter_context, begun)
        key = controlled.administrator_key
        async with browsing_as(controlled, key) as http:
            for topic in ("orders.*", "invoices.*"):
                wish = {"effect": "grant", "on": f"topic:{topic}", "to": "user:shop"}
                await changed(http, kind="rule", produce="yes", **wish)
            paths = (
                *("/rules", "/rules/now", "/rules/change?kind=rule", "/rules/change?kind=role"),
                *("/rules/change?kind=quota", "/rules/change?kind=namespace"),
                "/rules/change?kind=rule&effect=grant&on=topic:a&to=user:x&step=preview",
                "/rules/change?kind=rule&effect=grant&produce=yes&on=topic:a&to=user:x"
                "&step=preview",
                *("/rules/change?restore=1", "/rules/compare?from=1&to=3", "/keys", "/audit"),
                "/access?principal=user:ann&right=produce&resource=topic:orders",
            )
            cookies = {one.name: one.value or "" for one in http.cookies.jar}
            yield Scene(controlled.console, _named(paths), cookies)


@asynccontextmanager
async def _empty() -> AsyncIterator[Scene]:
    async with LocalCluster(queries=1, consoles=1, settings=SMALL_STORE) as cluster:
        [url] = cluster.console_urls
        yield Scene(url, _named([path for path in _PATHS if "orders" not in path]), {})


@asynccontextmanager
async def _away() -> AsyncIterator[Scene]:
    async with (
        LocalCluster(brokers=2, queries=1, consoles=1, settings=SMALL_STORE) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        await client.admin.create_topic("orders", queue_count=2)
        await client.admin.groups.create("billing", start="earliest")
        async with client.producer() as producer:
            for number in range(20):
                await producer.send(eruca.Message("orders", b"x", keys=str(number)))
        [url] = cluster.console_urls
        await cluster.kill("broker-b")
        yield Scene(url, _named(_PATHS), {})


SCENES: Final[Mapping[str, Callable[[], AbstractAsyncContextManager[Scene]]]] = {
    "full": _full,
    "errors": _errors,
    "rules": _rules,
    "empty": _empty,
    "away": _away,
}


async def _taken(page: Page) -> bytes:
    size = (await page.command("Page.getLayoutMetrics"))["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
    picture = await page.command(
        "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
    )
    return base64.b64decode(picture["data"])


def _write(file: Path, picture: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(picture)


async def _look(
    browser: Browser, scene: Scene, directory: Path, *, language: str, only: str
) -> None:
    page = await browser.new_page()
    await page.command("Emulation.setScrollbarsHidden", hidden=True)
    for name, value in {**scene.cookies, "eruca-console-language": language}.items():
        await page.command("Network.setCookie", name=name, value=value, url=scene.url)
    for width_name, width in WIDTHS.items():
        metrics = {"height": 900, "deviceScaleFactor": 1, "mobile": False}
        await page.command("Emulation.setDeviceMetricsOverride", width=width, **metrics)
        for scheme in SCHEMES:
            feature = {"name": "prefers-color-scheme", "value": scheme}
            await page.command("Emulation.setEmulatedMedia", features=[feature])
            for name, path in scene.paths.items():
                if only in name:
                    await page.open(scene.url + path)
                    file = directory / f"{name}.{width_name}.{scheme}.{language}.png"
                    _write(file, await _taken(page))
    await page.close()


async def _main(directory: Path, scenes: Sequence[str], language: str, only: str) -> None:
    program = chromium()
    assert program is not None, "there is no Chromium here"
    async with browsing(program) as browser:
        for name in scenes:
            folder = directory / name
            async with SCENES[name]() as scene:
                await _look(browser, scene, folder, language=language, only=only)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("scenes", nargs="+", choices=SCENES)
    parser.add_argument("--language", default="en")
    parser.add_argument("--only", default="", help="a part of the names of pages")
    given = parser.parse_args()
    asyncio.run(_main(given.directory, given.scenes, given.language, given.only))
