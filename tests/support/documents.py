"""The documentation's pages and the code in them.

One rule says what of it is run. A fenced block in ``python`` or ``sh`` is run by the tests, as it
stands. A block in ``console`` shows what a terminal would, and illustrates: nothing runs it.
One in ``toml`` is a file of settings, which ``test_systemd.py`` starts services by.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
GUIDE: Final = ROOT / "docs" / "guide"
CHINESE: Final = ROOT / "docs" / "zh"
RUN: Final = frozenset({"python", "sh"})
SHOWN: Final = frozenset({"console", "toml"})
_BLOCK: Final = re.compile(r"^```(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str


def pages() -> list[Path]:
    """Return the README and the pages of the guide."""
    return [README, *sorted(GUIDE.glob("*.md"))]


def translations() -> list[tuple[Path, Path]]:
    """Return each page that has a Chinese twin, and the twin."""
    return [
        (README if page.parent == CHINESE else GUIDE / page.name, page)
        for page in sorted(CHINESE.rglob("*.md"))
    ]


def blocks(page: Path) -> list[Block]:
    """Return a page's fenced blocks, in order."""
    return [Block(*found) for found in _BLOCK.findall(page.read_text())]


def examples(page: Path) -> list[Block]:
    """Return the blocks of a page that are run."""
    return [block for block in blocks(page) if block.language in RUN]


def name_of(page: Path) -> str:
    """Return a page's path in the repository."""
    return str(page.relative_to(ROOT))
