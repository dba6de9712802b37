"""Find the rows of damaged messages in the parts of an export, to report them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from eruca.contract.exports import NDJSON_MEDIA_TYPE


@dataclass(frozen=True, slots=True)
class DamagedPlace:
    """A damaged message: its fault, and its place as far as the selected columns contain it."""

    place: str
    damage: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return the place and fault in a row."""
        names = ("topic", "broker_name", "queue_id", "queue_offset", "log_offset")
        told = [f"{name} {row[name]}" for name in names if row.get(name) is not None]
        return cls(", ".join(told), row["damage"])

    def __str__(self) -> str:
        return f"{self.place}: {self.damage}" if self.place else self.damage


def damaged_places(parts: Sequence[Path], media_type: str) -> list[DamagedPlace]:
    """Return the damaged messages in *parts*, which have the column ``damage``."""
    rows = _lines if media_type == NDJSON_MEDIA_TYPE else _rows
    return [DamagedPlace.of(row) for part in parts for row in rows(part)]


def _lines(part: Path) -> Iterator[Mapping[str, Any]]:
    with part.open("rb") as file:
        for line in file:
            if b'"damage":null' not in line:
                row = msgspec.json.decode(line)
                if row["damage"] is not None:
                    yield row


def _rows(part: Path) -> Iterator[Mapping[str, Any]]:
    import pyarrow as pa

    with part.open("rb") as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            column = batch.column("damage")
            if column.null_count < len(column):
                yield from batch.filter(column.is_valid()).to_pylist()
