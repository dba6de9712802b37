"""The accessibility of a page in a browser, as axe-core judges it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from support.browser import Page

AXE: Final = Path(__file__).parent / "axe" / "axe-4.14.1.min.js"
RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


async def violations(page: Page) -> Any:  # noqa: ANN401 - a list of texts
    """Return the violations on the page that is open, each with its elements."""
    await page.evaluate(f"{AXE.read_text()}; 0")
    return await page.evaluate(
        f"axe.run({{runOnly: {RULES}}}).then(result => result.violations.map(one =>"
        " `${one.id}: ${one.nodes.map(node => node.html).join(' ')}`))"
    )
