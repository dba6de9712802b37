"""The documentation as a site: built strictly, complete, and opened from files without a network.

In a browser it needs Chromium: Debian's ``chromium-headless-shell``, or another on the PATH.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest

import eruca
from support.browser import Browser, Page, browsing, chromium
from support.documents import CHINESE, GUIDE, ROOT
from support.openapi_documents import SERVICES, kept_document

PROGRAM: Final = chromium()
in_a_browser = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        PROGRAM is None,
        reason="there is no Chromium here: apt-get install chromium-headless-shell",
    ),
]
BUILD_SECONDS: Final = 240  # on a machine that runs other tests


class Links(HTMLParser):
    """A page's resources, the targets of its links, and its named places."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.places |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.leads.append(values["href"])
        elif tag != "a":
            self.loads += [values[name] for name in ("src", "href") if name in values]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as ``make docs`` does, into a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr  # strict: a warning is an error
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {page: Links(page) for page in sorted(site.rglob("*.html"))}


def broken(pages: dict[Path, Links]) -> Iterator[str]:
    """Name each link to a file or a place that the site does not have."""
    for page, links in pages.items():
        for target in (*links.loads, *links.leads):
            parts = urlsplit(target)
            if parts.scheme or page.name == "404.html":  # that one is for servers: from their root
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            place = unquote(parts.fragment)
            is_there = file.is_file() and (file not in pages or place in pages[file].places | {""})
            if not is_there:
                yield f"{page.name}: {target}"


def test_every_page_of_the_repository_is_in_the_site(site: Path) -> None:
    expected = {f"guide/{page.stem}.html" for page in GUIDE.glob("*.md")}
    expected |= {f"{page.stem.lower()}.html" for page in ROOT.glob("[A-Z]*.md")} - {"readme.html"}
    expected |= {f"zh/guide/{page.stem}.html" for page in (CHINESE / "guide").glob("*.md")}
    expected |= {"index.html", "zh/index.html", "services/query/exports.html", "bench/index.html"}
    expected |= {f"services/{name}/design.html" for name in ("broker", "query", "txn-checker")}

    assert {path for path in expected if not (site / path).is_file()} == set()


def test_every_link_leads_somewhere(pages: dict[Path, Links]) -> None:
    assert list(broken(pages)) == []


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Links]) -> None:
    loaded = {url for links in pages.values() for url in links.loads if urlsplit(url).scheme}
    assert {url for url in loaded if not url.startswith("data:")} == set()

    styles = "".join(style.read_text() for style in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()[\s\"']*https?:[^)]*", styles) == []


def test_every_public_name_of_the_sdk_is_in_its_reference(pages: dict[Path, Links]) -> None:
    places = {place for links in pages.values() for place in links.places}

    assert [name for name in vars(eruca)["__all__"] if f"eruca.{name}" not in places] == []


def test_docstrings_are_shown_without_sphinx_roles(site: Path) -> None:
    reference = [*(site / "reference" / "sdk").glob("*.html")]

    assert len(reference) > 5
    assert [page.name for page in reference if re.search(r":[a-z]+:<code>", page.read_text())] == []


def test_each_page_says_its_language(site: Path) -> None:
    """And with it the theme, whose own words are in that language."""
    for page, language, search in (("index", "en", "Search"), ("zh/index", "zh", "搜索")):
        text = (site / f"{page}.html").read_text()
        assert f'<html lang="{language}"' in text
        assert f'placeholder="{search}"' in text


def test_a_field_has_the_comment_of_its_line(site: Path) -> None:
    source = ROOT / "sdk" / "src" / "eruca" / "core" / "producing" / "send_result.py"
    [comment] = re.findall(r"^    log_offset: int  # (.+)$", source.read_text(), re.MULTILINE)
    page = site / "reference" / "sdk" / "producing.html"

    assert f"<p>{html.escape(comment, quote=False)}</p>" in page.read_text()


@pytest.mark.parametrize("service", SERVICES)
def test_every_operation_is_listed(site: Path, service: str) -> None:
    page = (site / "reference" / "http" / f"{service}.html").read_text()

    for path in kept_document(service)["paths"]:
        assert f"<code>{path}</code>" in page


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    assert PROGRAM is not None
    async with browsing(PROGRAM) as browser:
        yield browser


async def opened(browser: Browser, file: Path) -> Page:
    page = await browser.new_page()
    await page.open(file.as_uri())
    return page


def assert_quiet(page: Page) -> None:
    assert (page.failed, page.complaints) == ([], [])
    assert {urlsplit(url).scheme for url in page.requested} <= {"file", "data", "blob"}


class TestInABrowser:
    """From files: there is no server, and no address but the loopback's resolves."""

    pytestmark = in_a_browser

    async def test_the_search_finds_operations_names_and_words(
        self, browser: Browser, site: Path
    ) -> None:
        for words, address in (
            ("dead letters", "guide/groups.html"),
            ("acknowledge deliveries", "reference/http/broker.html"),
            ("SendResults", "reference/sdk/producing.html"),
            ("消费者组", "zh/guide/groups.html"),
        ):
            page = await opened(browser, site / "index.html")
            await page.evaluate(
                f"""(() => {{
                  document.querySelector("[data-md-toggle=search]").click();
                  const input = document.querySelector(".md-search__input");
                  input.focus();
                  input.value = {json.dumps(words)};
                  input.dispatchEvent(new Event("keyup", {{ bubbles: true }}));
                }})()"""
            )
            found = f'.md-search-result__link[href*="{address}"]'
            await page.wait_for(f"document.querySelector({json.dumps(found)}) !== null")
            assert_quiet(page)

    async def test_an_openapi_document_is_shown(self, browser: Browser, site: Path) -> None:
        page = await opened(browser, site / "reference" / "http" / "query.html")

        assert "query" in await page.text("#swagger-ui .info .title")
        await page.wait_for("document.querySelectorAll('#swagger-ui .opblock-tag').length > 2")
        assert_quiet(page)
