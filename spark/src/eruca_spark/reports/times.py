"""Time spans in frames."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as f

PERCENTILES: Sequence[tuple[str, float]] = (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99))


def ms_between(begin: str, end: str) -> Column:
    """Return the milliseconds from one column's time to another's; negative if clocks differ."""
    return f.unix_millis(end) - f.unix_millis(begin)


def spread(column: str) -> list[Column]:
    """Return the percentiles and the maximum of a column of milliseconds."""
    named = [
        f.percentile_approx(column, share, 10_000).cast("double").alias(name)
        for name, share in PERCENTILES
    ]
    return [*named, f.max(column).cast("double").alias("worst_ms")]
