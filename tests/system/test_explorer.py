"""The docs explorer in a real browser that reaches nothing but this machine, over a real cluster.

It needs Chromium: Debian's ``chromium-headless-shell``, ``chromium``, or any other on the PATH.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE
from support.browser import Browser, Page, browsing, chromium
from support.waiting import until_told

PROGRAM: Final = chromium()
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        PROGRAM is None,
        reason="there is no Chromium here: apt-get install chromium-headless-shell",
    ),
]
TRIED: Final = [  # service, where its page opens, the status it is answered with
    ("broker-a", "messages/sendMessages", "201"),
    ("broker-b", "status/getStatus", "200"),
    ("namesrv", "key-value table/putKv", "200"),
    ("txn-checker", "transactions/listTransactions", "200"),
    ("query", "messages/findMessages", "200"),
]
STATUS: Final = ".opblock.is-open .live-responses-table tbody .response-col_status"
ANSWER: Final = ".opblock.is-open .live-responses-table tbody .highlight-code"
# Swagger UI shows a form a moment before it has resolved its operation, and would not find it then.
RESOLVED: Final = """(() => {
  const path = document.querySelector(".opblock.is-open .opblock-summary-path")?.dataset.path;
  const method = document.querySelector(".opblock.is-open .opblock-summary-method")?.textContent;
  const at = ["paths", path, method?.toLowerCase()];
  return explorer.getSystem().specSelectors.specResolvedSubtree(at) !== undefined;
})()"""


@pytest.fixture(scope="module")
async def cluster() -> AsyncIterator[LocalCluster]:
    async with (
        LocalCluster(brokers=2, txn_checkers=1, queries=1, settings=SMALL_STORE) as cluster,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        # It tells the name servers where it is once it has its first broker.
        known = f"{cluster.namesrv_urls[0]}/v1/kv/ERUCA_TXN_CHECKERS"
        await until_told(lambda: client.get(known), lambda answer: answer.json()["entries"])
        # The topic of the examples.
        made = await client.put(f"{cluster.broker_urls['broker-a']}/v1/topics/flights", json={})
        assert made.is_success, made.text
        yield cluster


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    assert PROGRAM is not None
    async with browsing(PROGRAM) as browser:
        yield browser


@pytest.fixture
async def page(browser: Browser) -> Page:
    return await browser.new_page()


def assert_quiet(page: Page, cluster: LocalCluster) -> None:
    """Fail if something went wrong on the page, or it asked for anything outside the cluster."""
    assert (page.failed, page.complaints) == ([], [])
    ours = {urlsplit(service.url).netloc for service in cluster.plan.services}
    asked = {urlsplit(url).netloc for url in page.requested if not url.startswith("data:")}
    assert asked <= ours


async def execute(page: Page) -> str:
    """Send the open operation as its form stands, and return the answer's status."""
    await page.wait_for(RESOLVED)
    await page.click(".opblock.is-open .execute")
    return await page.text(STATUS)


async def services(page: Page) -> dict[str, str]:
    """Return what the page lets choose from: names, and what is shown for each."""
    options = "[...document.querySelectorAll('#service option')].map(o => [o.value, o.text])"
    shown: dict[str, str] = dict(await page.wait_for(f"{options}.length && {options}"))
    return shown


async def test_one_page_shows_every_service_of_the_cluster(
    cluster: LocalCluster, page: Page
) -> None:
    await page.open(f"{cluster.query_urls[0]}/docs")

    shown = await services(page)
    urls = {name: text.rpartition(" ")[2] for name, text in shown.items()}
    expected = {service.url for service in cluster.plan.services}
    assert set(urls.values()) == expected
    assert (urls["broker-a"], urls["broker-b"]) == tuple(cluster.broker_urls.values())
    assert (await page.text(".info .title")).startswith("Eruca broker")
    assert_quiet(page, cluster)


@pytest.mark.parametrize(("service", "operation", "status"), TRIED, ids=lambda value: str(value))
async def test_an_operation_of_each_service_is_tried_out_as_its_form_opens(
    cluster: LocalCluster, page: Page, service: str, operation: str, status: str
) -> None:
    docs = f"{cluster.query_urls[0]}/docs"
    await page.open(docs)
    names = await services(page)
    [name] = [name for name in names if name.startswith(service)]

    await page.open(f"{docs}?service={name}#/{operation.replace(' ', '%20')}")

    assert await execute(page) == status
    assert_quiet(page, cluster)


async def test_choosing_another_service_shows_its_operations(
    cluster: LocalCluster, page: Page
) -> None:
    await page.open(f"{cluster.query_urls[0]}/docs")
    await page.text(".info .title")

    await page.evaluate(
        "document.getElementById('service').value = 'namesrv';"
        "document.getElementById('service').dispatchEvent(new Event('change'))"
    )

    title = "document.querySelector('.info .title')?.textContent"
    await page.wait_for(f"{title}.includes('name server')")
    assert await page.evaluate("document.getElementById('service').value") == "namesrv"
    assert_quiet(page, cluster)


async def test_choosing_another_service_leaves_no_fragment_of_the_last_one(
    cluster: LocalCluster, page: Page
) -> None:
    await page.open(f"{cluster.query_urls[0]}/docs?service=broker-a#/messages/sendMessages")
    await page.wait_for(RESOLVED)

    await page.evaluate(
        "document.getElementById('service').value = 'namesrv';"
        "document.getElementById('service').dispatchEvent(new Event('change'))"
    )

    title = "document.querySelector('.info .title')?.textContent"
    await page.wait_for(f"{title}.includes('name server')")
    assert await page.evaluate("location.hash") == ""
    assert_quiet(page, cluster)


@pytest.mark.parametrize(
    ("fragment", "kept"),
    [
        ("#/messages/sendMessages", "#/messages/sendMessages"),
        ("#/messages", "#/messages"),
        ("#/messages/noSuchOperation", ""),
        ("#/no%20such%20tag/sendMessages", ""),
    ],
)
async def test_a_fragment_is_kept_only_where_it_leads_somewhere(
    cluster: LocalCluster, page: Page, fragment: str, kept: str
) -> None:
    await page.open(f"{cluster.broker_urls['broker-a']}/docs{fragment}")

    await page.text(".info .title")
    await page.wait_for(f"location.hash === {kept!r}")
    assert_quiet(page, cluster)


@pytest.mark.parametrize(
    ("phrase", "found"),
    [
        ("recall", {"recallScheduled"}),
        ("DEAD LETTERS redrive", {"redriveDeadLetters"}),
        ("/offsets:reset", {"resetOffsets"}),
        ("no such words", set()),
    ],
)
async def test_the_search_finds_operations_by_name_path_and_summary(
    cluster: LocalCluster, page: Page, phrase: str, found: set[str]
) -> None:
    await page.open(f"{cluster.broker_urls['broker-a']}/docs")
    await page.text(".info .title")

    await page.evaluate(f"explorer.getSystem().layoutActions.updateFilter({phrase!r})")

    shown = "[...document.querySelectorAll('.opblock')].map(o => o.id.split('-').at(-1))"
    names = await page.wait_for(f"{shown}.length === {len(found)} && {shown}")
    assert set(names) == found
    assert_quiet(page, cluster)


@pytest.mark.parametrize(("scheme", "is_dark"), [("dark", True), ("light", False)])
async def test_the_page_is_as_dark_as_the_system(
    cluster: LocalCluster, page: Page, scheme: str, is_dark: bool
) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    await page.command("Emulation.setEmulatedMedia", features=[feature])

    await page.open(f"{cluster.broker_urls['broker-a']}/docs")
    await page.text(".info .title")

    background = "getComputedStyle(document.documentElement).backgroundColor"
    assert (await page.evaluate(background) == "rgb(28, 32, 34)") is is_dark


async def test_a_parameter_that_may_be_left_out_is_left_empty(
    cluster: LocalCluster, page: Page
) -> None:
    """Or a first click would send an idempotency key that nobody chose."""
    await page.open(f"{cluster.broker_urls['broker-a']}/docs#/messages/sendMessages")
    await page.wait_for(RESOLVED)

    rows = "[...document.querySelectorAll('.opblock.is-open tr[data-param-in=header]')]"
    values = f"{rows}.map(row => [row.dataset.paramName, row.querySelector('input').value])"
    headers = await page.wait_for(f"{values}.length && {values}")

    assert dict(headers)["Idempotency-Key"] == ""
    assert set(dict(headers).values()) == {""}


async def test_every_service_has_a_page_of_its_own(cluster: LocalCluster, page: Page) -> None:
    for service in cluster.plan.services:
        if service in cluster.plan.queries:
            continue
        await page.open(f"{service.url}/docs#/operations/health")

        assert await execute(page) == "200"
        assert '"ok"' in await page.text(ANSWER)
        assert await page.evaluate("document.getElementById('choice').hidden") is True
    assert_quiet(page, cluster)


async def test_a_service_that_is_gone_is_said_to_be(cluster: LocalCluster, page: Page) -> None:
    await page.open(f"{cluster.query_urls[0]}/docs?service=broker-z")

    assert await page.text("#note") == "There is no service called broker-z now."
    assert_quiet(page, cluster)


async def test_a_page_of_another_site_reads_and_writes_nothing(
    cluster: LocalCluster, page: Page
) -> None:
    """As the browser sees it: the name server's page stands for a foreign one."""
    await page.open(f"{cluster.namesrv_urls[0]}/docs")
    await page.command("Page.setBypassCSP", enabled=True)
    await page.open(f"{cluster.namesrv_urls[0]}/docs")
    broker = cluster.broker_urls["broker-a"]

    read = await page.evaluate(f"fetch('{broker}/v1/status').then(() => 'read', e => e.name)")
    wrote = await page.evaluate(
        f"fetch('{broker}/v1/topics/foreign', {{method: 'PUT', body: '{{}}'}})"
        ".then(() => 'wrote', e => e.name)"
    )

    assert (read, wrote) == ("TypeError", "TypeError")
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{broker}/v1/topics/foreign")).status_code == 404
