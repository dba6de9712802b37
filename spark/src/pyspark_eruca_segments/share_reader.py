"""Read one share of a plan: a task's work."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import pyarrow as pa

from eruca.exporting.errors import DamagedError
from pyspark_eruca_segments.batches import batches_of, damaged_row
from pyspark_eruca_segments.objects import reading
from pyspark_eruca_segments.plan import Share, damage_text
from pyspark_eruca_segments.walk import Damaged, walk


def rows_of(share: Share, columns: Sequence[str], *, is_marked: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a share.

    Args:
        share: The stretch, and the rows that are wanted.
        columns: Their columns.
        is_marked: Whether a damaged part has a row.

    Raises:
        DamagedError: A part is damaged, and such parts have no rows.
        SourceError: The file is missing.
        UnavailableError: It cannot be read now.
    """
    stretch, selection = share
    with reading(stretch.source) as read:
        for part in walk(read, stretch.begin, stretch.end):
            if not isinstance(part, Damaged):
                yield from batches_of(part, selection, columns)
                continue
            text = damage_text(stretch.source.text, part)
            if not is_marked:
                raise DamagedError(
                    f"{text}. Restore the file from a backup, or read another copy of the log; to"
                    " continue, set damaged=mark: a row then stands for the damaged part"
                )
            print(f"eruca-segments: {text}", file=sys.stderr, flush=True)
            yield damaged_row(part, selection, columns)
