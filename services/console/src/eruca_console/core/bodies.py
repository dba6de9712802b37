"""A message's body as text, as JSON and as hexadecimal digits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

SHOWN_BYTES_MAX: Final = 64 * 1024  # a page with more would be slow to read for anybody
VIEWS: Final = ("json", "text", "hex")
_LINE: Final = 16  # bytes of a line


@dataclass(frozen=True, slots=True)
class BodyView:
    """A body as one view shows it.

    Attributes:
        view: Which one: one of ``VIEWS``.
        possible: The views that this body has.
        text: What is shown.
        size: Bytes of the whole body.
        is_cut: Whether only its beginning is shown.
    """

    view: str
    possible: tuple[str, ...]
    text: str
    size: int
    is_cut: bool


def body_view(octets: bytes, wanted: str = "") -> BodyView:
    """Return *octets* in the *wanted* view, or else in the first that is possible."""
    shown = octets[:SHOWN_BYTES_MAX]
    is_cut = len(shown) < len(octets)
    texts: dict[str, str] = {}
    text = _text(shown, is_cut=is_cut)
    if text is not None:
        pretty = None if is_cut else _pretty(text)
        if pretty is not None:
            texts["json"] = pretty
        texts["text"] = text
    texts["hex"] = _hex(shown)
    view = wanted if wanted in texts else next(iter(texts))
    return BodyView(view, tuple(texts), texts[view], len(octets), is_cut)


def _text(octets: bytes, *, is_cut: bool) -> str | None:
    """Return UTF-8 text; None if it is none. A character at the cut may be incomplete."""
    for missing in range(4 if is_cut else 1):
        try:
            text = octets[: len(octets) - missing].decode()
        except UnicodeDecodeError:
            continue
        printable = all(one.isprintable() or one in "\n\r\t" for one in text)
        return text if printable else None
    return None


def _pretty(text: str) -> str | None:
    """Return JSON with indentation; None: it is none. The text is laid out, not read and written.

    So numbers keep their digits, and names their order.
    """
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:
        return None


def _hex(octets: bytes) -> str:
    lines = []
    for start in range(0, len(octets), _LINE):
        line = octets[start : start + _LINE]
        digits = line.hex(" ").ljust(_LINE * 3 - 1)
        characters = "".join(chr(one) if 32 <= one < 127 else "." for one in line)
        lines.append(f"{start:08x}  {digits}  {characters}")
    return "\n".join(lines)
