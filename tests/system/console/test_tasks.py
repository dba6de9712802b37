"""Five tasks that a stranger does at the console, as ``docs/guide/tasks.md`` shows them.

If the pages have changed as they should, write the documents again::

    PYTHONPATH=tests .venv/bin/python tests/support/console_tasks.py
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.browser import Page, browsing, chromium
from support.console_tasks import PAGES, SECONDS_MAX, TASKS, Shop, done, shop, shown_in, text_of

PROGRAM = chromium()
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        PROGRAM is None,
        reason="there is no Chromium here: apt-get install chromium-headless-shell",
    ),
]


@pytest.fixture(scope="module", params=PAGES)
async def visited(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, Shop, Page]]:
    """A language, a cluster in which nothing is done yet, and a tab."""
    assert PROGRAM is not None
    async with shop() as one, browsing(PROGRAM) as browser:
        page = await browser.new_page()
        yield request.param, one, page
        await page.close()


@pytest.mark.parametrize("task", TASKS)
async def test_a_stranger_does_the_task_within_a_minute(
    visited: tuple[str, Shop, Page], task: str
) -> None:
    language, one, page = visited

    person = await done(page, language, one, task)

    assert person.seconds < SECONDS_MAX
    assert text_of(person, language) == shown_in(PAGES[language].read_text())[task]
