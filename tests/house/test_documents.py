"""README.md and the guide: short lines, code that is run, links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.documents import README, ROOT, RUN, SHOWN, blocks, name_of, pages

LINK = re.compile(r"\]\(([^)\s]+)\)")
BENCH = ROOT / "bench" / "README.md"


def test_the_readme_is_a_landing_page() -> None:
    assert len(README.read_text().splitlines()) <= 120


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_lines_have_a_hundred_columns_at_most(page: Path) -> None:
    assert [line for line in page.read_text().splitlines() if len(line) > 100] == []


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_a_block_of_code_is_run_or_shown(page: Path) -> None:
    """Which of the two, its language says: see ``support/documents.py``."""
    assert {block.language for block in blocks(page)} <= RUN | SHOWN
    assert page.read_text().count("```") == 2 * len(blocks(page))  # none was overlooked


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_lead_to_files_that_exist(page: Path) -> None:
    paths = [link.split("#")[0] for link in LINK.findall(page.read_text())]
    missing = [path for path in paths if ":" not in path and not (page.parent / path).exists()]

    assert missing == []


def test_the_readme_names_every_page_of_the_guide() -> None:
    """Some are named by the page before them."""
    named = "".join(page.read_text() for page in pages())

    assert [page.name for page in pages() if page != README and f"{page.name})" not in named] == []


def test_the_figures_of_the_readme_are_measured_ones() -> None:
    _, table = README.read_text().split("## Figures\n")
    cells = re.findall(r"^\| (?!Measured).+ \| (.+) \|$", table.split("\n## ")[0], re.MULTILINE)
    measured = BENCH.read_text()

    assert len(cells) > 3
    assert [cell for cell in cells if cell.removesuffix(" a second") not in measured] == []
