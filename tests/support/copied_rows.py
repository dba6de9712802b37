"""PostgreSQL's binary rows, taken apart: what COPY would have read."""

from __future__ import annotations

from collections.abc import Sequence

from eruca_query.core.message_rows import COLUMNS, FIXED

_TEXTS = ("tag", "keys", "other_id", "unique_id")


def copied_rows(data: bytes, columns: Sequence[str] = COLUMNS) -> list[dict[str, int | bytes]]:
    """Return rows by column; numbers where the column holds one."""
    rows = []
    at = 0
    while at < len(data):
        count = int.from_bytes(data[at : at + 2], "big")
        assert count == len(columns)
        at += 2
        row: dict[str, int | bytes] = {}
        for name in columns:
            size = int.from_bytes(data[at : at + 4], "big")
            value = data[at + 4 : at + 4 + size]
            assert len(value) == size
            row[name] = value if name in _TEXTS else int.from_bytes(value, "big", signed=True)
            at += 4 + size
        rows.append(row)
    return rows


assert {name for name, _ in FIXED} | {*_TEXTS} == {*COLUMNS}
