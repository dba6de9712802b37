"""Fonts for any text in messages: the first choice, and fallbacks for missing glyphs.

The labels of a chart are topics, keys and groups, in any script. Matplotlib includes one font,
DejaVu Sans. It has no Chinese, Japanese or Korean characters, and shows a box instead. Matplotlib
falls back from one font to the next, glyph by glyph. It only needs the list of fonts for a
picture's texts.

Fonts made for this purpose come first, then all other installed fonts. Fonts of the extra ``fonts``
are found in their packages.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

FIRST_CHOICE: Final = "DejaVu Sans"
INSTALL: Final = "pip install './spark[fonts]', or a font such as Noto Sans CJK (fonts-noto-cjk)"
_PACKAGES: Final = ("noto_cjk_sans_otc", "manimgx_fonts")  # of the extra "fonts"
# By name, in this order: simplified Chinese before Japanese, which draws characters differently.
_PREFERRED: Final = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "PingFang SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "SimHei",
    "Arial Unicode MS",
    "Noto Sans CJK JP",
    "Noto Sans",
    "Segoe UI",
)
_BOXES: Final = "Last Resort"  # has a box for every character
# These select a form of the character before them, and are not drawn themselves.
_VARIATION_SELECTORS: Final = frozenset([*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])
_REGULAR_WEIGHTS: Final = frozenset({"normal", "regular", "book", 400})


class Fonts(NamedTuple):
    """The fonts for some texts."""

    families: list[str]  # in the order of fallback
    missing: str  # characters that no font has, each once


def fonts_for(texts: Iterable[str]) -> Fonts:
    """Return the fonts for *texts*, and the characters that no installed font has."""
    wanted = {ord(char) for text in texts for char in text if not char.isspace()}
    wanted -= _VARIATION_SELECTORS
    families = [FIRST_CHOICE]
    left = wanted - _characters(*_file_of(FIRST_CHOICE))
    for family, path, face in _candidates() if left else ():
        found = left & _characters(path, face)
        if found:
            families.append(family)
            left -= found
            if not left:
                break
    return Fonts(families, "".join(map(chr, sorted(left))))


def _candidates() -> Iterator[tuple[str, str, int]]:
    """Yield name, file and face of each upright font of a regular weight, preferred ones first."""
    from matplotlib.font_manager import fontManager

    _add_packaged()
    by_name = {
        entry.name: (entry.fname, entry.index)
        for entry in fontManager.ttflist
        if entry.style == "normal"
        and entry.weight in _REGULAR_WEIGHTS
        and not entry.name.startswith(_BOXES)
    }
    others = sorted(by_name.keys() - {*_PREFERRED, FIRST_CHOICE})
    for name in (*_PREFERRED, *others):
        if name in by_name:
            yield name, *by_name[name]


def _file_of(family: str) -> tuple[str, int]:
    from matplotlib.font_manager import findfont

    found = findfont(family)
    return found.path, found.face_index


@cache
def _add_packaged() -> None:
    """Register the fonts that are installed as Python packages with matplotlib."""
    from matplotlib.font_manager import fontManager

    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            for path in sorted(Path(spec.origin).parent.glob("*.tt[fc]")):
                fontManager.addfont(path)


@cache
def _characters(path: str, face: int) -> frozenset[int]:
    """Return the characters with glyphs in a font; empty if matplotlib cannot draw with it."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(path, face_index=face)
        return frozenset(font.get_charmap())
    except (OSError, RuntimeError):  # bitmaps, or a file that was deleted since it was listed
        return frozenset()
