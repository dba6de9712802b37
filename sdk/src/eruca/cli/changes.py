"""Describe a command's changes to existing settings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Row = Sequence[object]  # the settings at one broker, as a table shows them


def change_lines(
    name: str, headings: Sequence[str], before: Mapping[str, Row], after: Mapping[str, Row]
) -> list[str]:
    """Return one line for each broker that had settings before, with the changes."""
    lines = []
    for broker_name in sorted(before.keys() & after.keys()):
        pairs = zip(headings, before[broker_name], after[broker_name], strict=True)
        changed = [f"{heading} {old} → {new}" for heading, old, new in pairs if old != new]
        what = ", ".join(changed) or "nothing changed"
        lines.append(f"{broker_name} already had {name}: {what}")
    return lines
