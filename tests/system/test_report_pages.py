"""A report's page in a real browser, opened as a file: no server, and no request.

It needs Chromium, as the console's tests do. axe-core judges its accessibility.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from eruca_spark.reports.words import Language
from support.accessibility import violations
from support.browser import Page, browsing, chromium
from support.report_pages import ATTACK, hot_keys_page

PROGRAM: Final = chromium()
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        PROGRAM is None,
        reason="there is no Chromium here: apt-get install chromium-headless-shell",
    ),
]
DRAWN: Final = "[...document.querySelectorAll('.drawing')].every(one => one.querySelector('svg'))"
COLUMN: Final = "[...document.querySelectorAll('table')[{}].tBodies[0].rows].map(r => r.cells[{}]"
BARS: Final = "[...document.querySelectorAll('.drawing')][0].querySelectorAll('path').length"


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    assert PROGRAM is not None
    async with browsing(PROGRAM) as browser:
        yield await browser.new_page()


async def opened(page: Page, tmp_path: Path, language: Language, scheme: str, width: int) -> None:
    path = tmp_path / f"{language}.html"
    path.write_text(hot_keys_page(language), encoding="utf-8")
    feature = {"name": "prefers-color-scheme", "value": scheme}
    await page.command("Emulation.setEmulatedMedia", features=[feature])
    await page.command(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    await page.open(path.as_uri())
    await page.wait_for(DRAWN)


async def column(page: Page, table: int, index: int) -> list[str]:
    cells: list[str] = await page.evaluate(f"{COLUMN.format(table, index)}.textContent)")
    return cells


async def test_a_page_is_accessible_dark_and_light_wide_and_narrow(
    page: Page, tmp_path: Path
) -> None:
    cases: tuple[tuple[Language, str, int], ...] = (
        ("en", "light", 1280),
        ("zh", "dark", 1280),
        ("zh", "light", 360),
        ("en", "dark", 360),
    )
    for language, scheme, width in cases:
        await opened(page, tmp_path, language, scheme, width)
        assert await violations(page) == []
        over = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert over <= 0
        assert await page.evaluate("document.querySelectorAll('.drawing svg').length") == 3
        assert await page.evaluate(BARS) > 12
    assert (page.failed, page.complaints) == ([], [])
    assert {url.partition(":")[0] for url in page.requested} == {"file"}


async def test_tables_sort_themes_switch_and_markup_does_not_run(
    page: Page, tmp_path: Path
) -> None:
    await opened(page, tmp_path, "en", "light", 1280)
    assert ATTACK in await column(page, 0, 1)

    button = "table thead th:nth-child(3) button"
    await page.evaluate(f"document.querySelector('{button}').focus(); 0")
    head = "document.querySelector('table thead th:nth-child(3)').getAttribute('aria-sort')"
    await page.press("Enter")
    assert await page.evaluate(head) == "descending"
    assert (await column(page, 0, 2))[:3] == ["600", "20", "19"]
    await page.press("Enter")
    assert await page.evaluate(head) == "ascending"
    assert (await column(page, 0, 2))[:3] == ["10", "11", "12"]

    await page.click("table thead th:nth-child(2) button")
    assert await page.evaluate(head) is None
    names = await column(page, 0, 1)
    # as a person counts: key-2 before key-10
    assert [name for name in names if name != ATTACK] == [f"key-{number}" for number in range(11)]

    for _ in range(2):  # unknown values are last in both directions
        await page.evaluate(
            "document.querySelectorAll('table')[1].querySelectorAll('thead button')[2].click(); 0"
        )
        assert await column(page, 1, 2) == ["7", "-", "-"]

    await page.evaluate("theme.value = 'dark'; theme.dispatchEvent(new Event('change')); 0")
    background = "getComputedStyle(document.body).backgroundColor"
    assert await page.evaluate(background) == "rgb(18, 21, 19)"
    await page.wait_for("document.querySelector('.drawing path[fill=\"#56b4e9\"]') !== null")
    await page.click("#copy")
    await page.wait_for("document.getElementById('copied').textContent")
    selected = await page.evaluate("getSelection().toString()")
    assert selected == "eruca-spark hot-keys --topic orders"
    assert (page.failed, page.complaints) == ([], [])
