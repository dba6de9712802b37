"""The console in a real browser that reaches nothing but this machine, over a real cluster.

It needs Chromium, as the docs explorer's tests do. axe-core judges each page's accessibility.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlsplit

import pytest

import eruca
from eruca.contract.recall_handles import RecallHandle, encode_recall_handle
from eruca.contract.retries import DeadLetter
from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE
from support.accessibility import violations
from support.browser import Browser, Page, browsing, chromium
from support.consoles import begin
from support.waiting import until_told

PROGRAM: Final = chromium()
HANDLE: Final = encode_recall_handle(RecallHandle("orders", "broker-a", 4_000_000_000_000, "later"))
PATHS: Final = (
    "/overview",
    "/brokers",
    "/brokers/broker-a",
    "/brokers/broker-a/switch",
    "/topics",
    "/topics/orders",
    "/groups",
    "/groups/billing",
    "/groups/billing/as-of",
    "/groups/billing/as-of?broker=broker-a&log_offset=1200",
    "/messages",
    "/groups/billing/reset?topic=orders&to=earliest",
    "/topics/orders/volume",
    "/topics/orders/send",
    "/topic-settings",
    "/topic-settings?topic=orders&permission=r&step=preview",
    "/group-settings?group=billing&consume_enabled=no&step=preview",
    "/scheduled",
    f"/scheduled/{HANDLE}",
    "/transactions",
    "/transactions/broker-a/order-17",
    "/transactions/broker-a/order-17/decision?outcome=commit",
    "/audit",
    "/access?principal=user:ann&right=produce&resource=topic:orders",
    "/rules",
    "/rules/now",
    "/rules/change?kind=rule",
    "/rules/compare?from=1&to=2",
    "/keys",
    "/nowhere",
)
NARROW: Final = 360  # CSS pixels
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        PROGRAM is None,
        reason="there is no Chromium here: apt-get install chromium-headless-shell",
    ),
]


@pytest.fixture(scope="module")
async def cluster() -> AsyncIterator[LocalCluster]:
    settings = {**SMALL_STORE, "ERUCA_CONSOLE_LIVE_SECONDS": "0.1"}
    async with (
        LocalCluster(queries=1, consoles=1, settings=settings) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        for topic in ("orders", "returns", "stock"):
            await client.admin.create_topic(topic, queue_count=2)
        await client.admin.groups.create("billing", start="earliest")
        await client.admin.groups.create("idle", start="earliest")
        async with client.producer() as producer:
            body = b'{"order": 17, "total": 12345678901234567890.10}'
            await producer.send(eruca.Message("orders", body, keys="17", tag="paid"))
            await producer.send(eruca.Message("returns", b"x", delay_seconds=3_600))
        await begin(client, "orders", "order-17")
        consumer = client.push_consumer("billing", start="earliest")
        consumer.on("orders")(lambda message: None)
        async with consumer:
            yield cluster


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    assert PROGRAM is not None
    async with browsing(PROGRAM) as browser:
        yield browser


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """An empty tab; left open, each would keep one of the browser's six connections to a host."""
    page = await browser.new_page()
    yield page
    await page.close()


def url(cluster: LocalCluster, path: str) -> str:
    [console] = cluster.console_urls
    return console + path


def assert_quiet(page: Page, cluster: LocalCluster) -> None:
    """Fail if something went wrong on the page, or it asked for anything but the console."""
    # A page ends its own stream when it is left, or shows another list.
    failed = [one for one in page.failed if "net::ERR_ABORTED" not in one]
    assert (failed, page.complaints) == ([], [])
    asked = {urlsplit(one).netloc for one in page.requested if not one.startswith("data:")}
    assert asked == {urlsplit(cluster.console_urls[0]).netloc}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PATHS)
async def test_a_page_is_accessible_and_narrow_enough(
    cluster: LocalCluster, page: Page, path: str, scheme: str
) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    await page.command("Emulation.setEmulatedMedia", features=[feature])
    await page.command(
        "Emulation.setDeviceMetricsOverride",
        width=NARROW if scheme == "dark" else 1280,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    await page.open(url(cluster, path))

    assert await violations(page) == []
    width = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert width <= 0
    if path != "/nowhere":  # whose answer is an error
        assert_quiet(page, cluster)


async def test_an_open_page_follows_the_cluster(cluster: LocalCluster, page: Page) -> None:
    await page.open(url(cluster, "/topics/returns"))
    assert await page.text(".facts dd") == "0"
    assert await page.wait_for("document.getElementById('live-state').dataset.state === 'on'")

    async with eruca.AsyncClient(cluster.namesrv_urls) as client, client.producer() as producer:
        await producer.send(eruca.Message("returns", b"x"))

    await page.wait_for("document.querySelector('.facts dd').textContent === '1'")
    assert_quiet(page, cluster)


async def test_a_list_is_searched_while_one_types_and_the_url_says_so(
    cluster: LocalCluster, page: Page
) -> None:
    await page.open(url(cluster, "/topics"))
    await page.press("/")
    await page.wait_for("document.activeElement.id === 'q'")

    await page.command("Input.insertText", text="ret")

    await page.wait_for("document.querySelectorAll('tr[data-row]').length === 1")
    await page.wait_for("location.search.includes('q=ret')")
    assert "returns" in await page.text("tr[data-row]")
    assert_quiet(page, cluster)


async def test_what_is_typed_before_the_scripts_have_come_is_searched_for(
    cluster: LocalCluster, page: Page
) -> None:
    early = """document.addEventListener("readystatechange", () => {
        const search = document.getElementById("q");
        if (document.readyState !== "interactive" || !search) return;
        search.value = "ret";
        search.dispatchEvent(new Event("input", { bubbles: true }));
    });"""
    await page.command("Page.addScriptToEvaluateOnNewDocument", source=early)

    await page.open(url(cluster, "/topics"))

    await page.wait_for("document.querySelectorAll('tr[data-row]').length === 1")
    await page.wait_for("location.search.includes('q=ret')")
    assert_quiet(page, cluster)


async def test_a_list_is_walked_and_a_row_opened_by_the_keyboard(
    cluster: LocalCluster, page: Page
) -> None:
    await page.open(url(cluster, "/topics"))
    await page.press("j")
    await page.press("j")
    await page.press("k")
    first = await page.evaluate("document.activeElement.textContent")
    assert first == "orders"

    await page.press("Enter")
    ready = "document.readyState === 'complete'"  # the script has run
    await page.wait_for(f"location.pathname === '/topics/orders' && {ready}")
    await page.press("g")
    await page.press("g")
    await page.wait_for(f"location.pathname === '/groups' && {ready}")
    await page.press("?")
    assert await page.wait_for("document.getElementById('keys').open")
    assert_quiet(page, cluster)


async def test_a_time_is_chosen_by_mouse_and_by_keyboard_and_its_messages_are_shown(
    cluster: LocalCluster, page: Page
) -> None:
    await page.open(url(cluster, "/topics/orders/volume"))
    await page.wait_for("document.querySelector('.edge:not([hidden])')")
    whole = await page.evaluate("document.getElementById('since').value")

    box = await page.evaluate(
        "(() => { const box = document.querySelector('.histogram').getBoundingClientRect();"
        " return [box.left, box.top + box.height / 2, box.width]; })()"
    )
    left, middle, width = box
    for kind, x in (("Pressed", 0.5), ("Moved", 0.99), ("Released", 0.99)):
        await page.command(
            "Input.dispatchMouseEvent",
            type=f"mouse{kind}",
            x=left + width * x,
            y=middle,
            button="left",
            buttons=1,
            clickCount=1,
        )
    await page.wait_for(f"document.getElementById('since').value > {whole!r}")
    half = await page.evaluate("document.getElementById('edge-from').value")
    assert half == "30"
    assert "Chosen messages: 1" in await page.text("[data-chosen]")

    await page.evaluate("document.getElementById('edge-from').focus(); 0")
    arrow = {"key": "ArrowRight", "code": "ArrowRight", "windowsVirtualKeyCode": 39}
    for kind in ("rawKeyDown", "keyUp"):
        await page.command("Input.dispatchKeyEvent", type=kind, **arrow)
    await page.wait_for("document.getElementById('edge-from').value === '31'")
    await page.evaluate("document.querySelector('.brush button[name=topic]').focus(); 0")
    await page.press("Enter")

    await page.wait_for("location.pathname === '/messages' && document.readyState === 'complete'")
    assert "topic=orders" in await page.evaluate("location.search")
    assert await page.wait_for("document.querySelectorAll('tr[data-row]').length === 1")
    assert_quiet(page, cluster)


async def test_the_volume_of_an_open_page_follows_the_topic(
    cluster: LocalCluster, page: Page
) -> None:
    await page.open(url(cluster, "/topics/stock/volume"))
    assert await page.text(".facts dd") == "0"

    async with eruca.AsyncClient(cluster.namesrv_urls) as client, client.producer() as producer:
        await producer.send(eruca.Message("stock", b"x", keys="late"))

    await page.wait_for("document.querySelectorAll('tr[data-row]').length === 1")
    await page.wait_for("document.querySelector('.facts dd').textContent === '1'")
    assert_quiet(page, cluster)


async def test_theme_and_language_are_chosen_without_a_script(
    cluster: LocalCluster, page: Page
) -> None:
    await page.open(url(cluster, "/groups"))
    await page.evaluate(
        "document.getElementById('theme').value = 'dark';"
        "document.getElementById('language').value = 'zh';"
        "document.querySelector('form[action=\"/preferences\"]').submit()"
    )

    await page.wait_for("document.documentElement?.lang === 'zh-Hans'")
    assert await page.evaluate("location.pathname") == "/groups"
    background = "getComputedStyle(document.body).backgroundColor"
    assert await page.evaluate(background) == "rgb(18, 21, 19)"
    await page.command("Network.clearBrowserCookies")
    assert_quiet(page, cluster)


async def test_a_message_is_found_by_its_key_and_shows_its_life(
    cluster: LocalCluster, page: Page
) -> None:
    await page.open(url(cluster, "/messages?topic=orders&key=17"))
    await page.click("tr[data-row] a")

    await page.wait_for("location.pathname.startsWith('/messages/7F') && document.readyState")
    await page.wait_for("document.querySelectorAll('svg.life rect').length > 0")
    assert "stored" in await page.text("tbody th .badge")
    body = await page.text("pre.body")
    assert body == '{\n  "order": 17,\n  "total": 12345678901234567890.10\n}'
    assert await violations(page) == []

    await page.evaluate("document.getElementById('group').value = 'idle'")
    await page.click("form[action*='/messages/'] button")
    await page.wait_for("location.search === '?group=idle'")
    assert "does not subscribe to the topic orders" in await page.text(".answer")
    await page.open(url(cluster, "/messages?id=nonsense"))
    assert "Unknown now." in await page.text(".refused")
    assert_quiet(page, cluster)


async def test_dead_letters_are_chosen_looked_at_and_redriven(
    cluster: LocalCluster, page: Page
) -> None:
    count = 11  # above it, the number must be typed
    async with eruca.AsyncClient(cluster.namesrv_urls) as client:
        await client.admin.create_topic("sales", queue_count=1)
        await client.admin.groups.create("debtors", start="earliest", retries_max=0)
        async with client.producer() as producer:
            for number in range(count + 1):
                await producer.send(eruca.Message("sales", b"x", keys=str(number)))

        def refuse(message: eruca.ReceivedMessage) -> None:
            error = ValueError("card 4711 was declined")
            raise error if message.keys != ["0"] else TimeoutError("the bank is away")

        consumer = client.push_consumer(
            "debtors", start="earliest", retries=eruca.Retries(retries_max=0)
        )
        consumer.on("sales")(refuse)
        async with consumer:
            await until_told(
                lambda: dead_letters(client, "debtors"), lambda found: len(found) > count
            )

        path = "/groups/debtors/dead-letters"
        await page.open(url(cluster, path))
        await page.wait_for(f"document.querySelectorAll('[name=letter]').length === {count + 1}")
        await page.click(".choices a[href*='card']")
        await page.wait_for(
            "location.search.includes('error=') && document.readyState === 'complete'"
        )
        await page.click("[data-all=letter]")
        await page.click(".acts button")
        await page.wait_for("document.getElementById('typed') !== null")
        outcomes = await page.text("tbody")
        assert outcomes.count("would be redriven") == count
        assert not any(one.redriven_at for one in await dead_letters(client, "debtors"))

        assert await violations(page) == []
        await page.evaluate(f"document.getElementById('typed').value = '{count}'")
        await page.click(".act button")
        await page.wait_for("document.querySelector('.facts') && !document.getElementById('typed')")
        assert await page.evaluate("document.querySelectorAll('.facts dd')[1].textContent") == str(
            count
        )
        after = await dead_letters(client, "debtors")
        assert sum(one.redriven_at is not None for one in after) == count
    assert_quiet(page, cluster)


async def dead_letters(client: eruca.AsyncClient, group: str) -> list[DeadLetter]:
    return [held.letter async for held in client.admin.groups.dead_letters(group)]
