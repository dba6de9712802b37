"""Compaction: the latest message of each key, as a table of the current state."""

from __future__ import annotations

from typing import Final, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eruca_spark.lake import LakeError
from eruca_spark.lake_files import lake_files
from eruca_spark.parquet import parquet_settings
from pyspark_eruca.sink_columns import DELETED_PROPERTY

KeyColumn = Literal["key", "sharding_key"]

# Beginnings of the names in a table's directory, interrupted runs included.
_OF_A_TABLE: Final = ("topic=", "_SUCCESS", "_temporary", ".")
_ORDER: Final = ("stored_at", "broker_name", "log_offset")


def latest_by_key(messages: DataFrame, by: KeyColumn) -> DataFrame:
    """Return the latest message of each topic and key, with the key as ``compaction_key``.

    The latest message is the one with the latest store time. For equal times in ms, it is the one
    later in the log. This is correct if all messages of a key are in one queue. Messages without a
    key are omitted, and so are keys whose latest message is a deletion: one with the property
    ``ERUCA_DELETED=true``.

    Args:
        messages: Messages of any topics.
        by: The first of a message's keys, or its sharding key.
    """
    key = f.get("keys", 0) if by == "key" else f.col("sharding_key")
    keyed = messages.withColumn("compaction_key", key).where("compaction_key IS NOT NULL")
    whole = f.struct(*messages.columns)
    latest = keyed.groupBy("topic", "compaction_key").agg(
        f.max_by(whole, f.struct(*_ORDER)).alias("latest")
    )
    deleted = f.coalesce(f.try_element_at("latest.properties", f.lit(DELETED_PROPERTY)), f.lit(""))
    return latest.where(deleted != "true").select("compaction_key", "latest.*")


def write_compacted(latest: DataFrame, path: str) -> None:
    """Write the table as Parquet, by topic; replace an existing table, and nothing else.

    Raises:
        LakeError: The directory has something else.
    """
    entries = [name for name, _ in lake_files(latest.sparkSession, path).glob("*")]
    strange = [name for name in entries if not name.startswith(_OF_A_TABLE)]
    if strange:
        raise LakeError(
            f"expected the table of a compaction in {path}, found {strange[0]}; nothing was deleted"
        )
    writer = latest.write.mode("overwrite").option("partitionOverwriteMode", "static")
    with parquet_settings(latest.sparkSession):
        writer.option("compression", "zstd").partitionBy("topic").parquet(path)
