"""Where a job's messages come from: a lake, or the topics themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from eruca_spark.lake import read_lake


@dataclass(frozen=True, slots=True)
class MessageSource:
    """A lake, or a query service that exports topics."""

    lake: str | None = None
    url: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)  # of the data source

    def messages(self, spark: SparkSession, topics: Sequence[str]) -> DataFrame:
        """Return the messages of *topics*; of a lake: of all of them where none is named."""
        if self.lake is not None:
            rows = read_lake(spark, self.lake)
            return rows.where(f.col("topic").isin([*topics])) if topics else rows
        options = {**self.options, "topic": ",".join(topics)}
        if self.url is not None:
            options["url"] = self.url
        return spark.read.format("eruca").options(**options).load()
