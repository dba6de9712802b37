"""Compaction: of each key the latest message, as a table of what is so now."""

from __future__ import annotations

from typing import Final, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

KeyColumn = Literal["key", "sharding_key"]

_ORDER: Final = ("stored_at", "broker_name", "log_offset")


def latest_by_key(messages: DataFrame, by: KeyColumn) -> DataFrame:
    """Return the latest message of each topic and key, with the key as ``compaction_key``.

    The later one is the one stored later; of those stored in the same millisecond, the one behind
    the other in the log, which is right wherever a key's messages are in one queue. Messages
    without a key are left out.

    Args:
        messages: Of any topics.
        by: The first of a message's keys, or its sharding key.
    """
    key = f.get("keys", 0) if by == "key" else f.col("sharding_key")
    keyed = messages.withColumn("compaction_key", key).where("compaction_key IS NOT NULL")
    whole = f.struct(*messages.columns)
    latest = keyed.groupBy("topic", "compaction_key").agg(
        f.max_by(whole, f.struct(*_ORDER)).alias("latest")
    )
    return latest.select("compaction_key", "latest.*")


def write_compacted(latest: DataFrame, path: str) -> None:
    """Write the table as Parquet, by topic; one that is there is replaced."""
    writer = latest.write.mode("overwrite").option("partitionOverwriteMode", "static")
    writer.option("compression", "zstd").partitionBy("topic").parquet(path)
