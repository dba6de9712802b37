"""Describe a command's changes to existing settings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Row = Sequence[object]  # the settings at one broker, as a table shows them


def change_lines(
    name: str, headings: Sequence[str], before: Mapping[str, Row], after: Mapping[str, Row]
) -> list[str]:
    """Return what has become of each broker's settings that were there before, as lines."""
    lines = []
    for broker_name in sorted(before.keys() & after.keys()):
        pairs = zip(headings, before[broker_name], after[broker_name], strict=True)
        changed = [f"{heading} {old} → {new}" for heading, old, new in pairs if old != new]
        what = ", ".join(changed) or "nothing changed"
        lines.append(f"{broker_name} had {name} already: {what}")
    return lines
