"""README.md, the guide and their Chinese twins: code that is run, links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.documents import README, ROOT, RUN, SHOWN, blocks, name_of, pages, translations

LINK = re.compile(r"\]\(([^)\s]+)\)")
BENCH = ROOT / "bench" / "README.md"
TWINS = [twin for _, twin in translations()]


def test_the_readme_is_a_landing_page() -> None:
    assert len(README.read_text().splitlines()) <= 120


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_lines_have_a_hundred_columns_at_most(page: Path) -> None:
    assert [line for line in page.read_text().splitlines() if len(line) > 100] == []


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_a_block_of_code_is_run_or_shown(page: Path) -> None:
    """Its language decides which of the two: see ``support/documents.py``."""
    assert {block.language for block in blocks(page)} <= RUN | SHOWN
    assert page.read_text().count("```") == 2 * len(blocks(page))  # none was overlooked


@pytest.mark.parametrize("page", [*pages(), *TWINS], ids=name_of)
def test_links_lead_to_files_that_exist(page: Path) -> None:
    paths = [link.split("#")[0] for link in LINK.findall(page.read_text())]
    missing = [path for path in paths if ":" not in path and not (page.parent / path).exists()]

    assert missing == []


def test_the_readme_names_every_page_of_the_guide() -> None:
    """Some are named by the page before them."""
    named = "".join(page.read_text() for page in pages())

    assert [page.name for page in pages() if page != README and f"{page.name})" not in named] == []


def test_the_figures_of_the_readme_are_measured_ones() -> None:
    cells = figures(README, "Figures")
    measured = BENCH.read_text()

    assert len(cells) > 3
    assert [cell for cell in cells if cell.removesuffix(" a second") not in measured] == []


def figures(page: Path, heading: str) -> list[str]:
    """Return the second column of the table below a heading."""
    _, section = page.read_text().split(f"## {heading}\n")
    return re.findall(r"^\| \S.* \| (.+) \|$", section.split("\n## ")[0], re.MULTILINE)


@pytest.mark.parametrize(("page", "twin"), translations(), ids=name_of)
def test_a_twin_has_the_code_of_its_page(page: Path, twin: Path) -> None:
    """So the tests that run the page's examples run the twin's."""
    assert blocks(twin) == blocks(page)


@pytest.mark.parametrize(("page", "twin"), translations(), ids=name_of)
def test_a_twin_has_the_parts_of_its_page(page: Path, twin: Path) -> None:
    """A section, a list or a table that one of the two gets is missing in the other."""
    assert outline(twin) == outline(page)


def outline(page: Path) -> list[str]:
    """Return a page's headings, list items and rows, without their words."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^(?:#+|-|\|)(?= )", text, re.MULTILINE)


def test_the_chinese_readme_has_the_figures_of_the_english_one() -> None:
    in_words = {"2.3 million": "230 万"}
    english = [found for cell in figures(README, "Figures") for found in numbers(cell)]
    chinese = [found for cell in figures(TWINS[0], "性能数据") for found in numbers(cell)]

    assert [in_words.get(number, number) for number in english] == chinese


def numbers(cell: str) -> list[str]:
    """Return the numbers in a cell, with the words that belong to them."""
    return [found.strip() for found in re.findall(r"\d[\d .-]*\d(?: million| 万)?|\d", cell)]
