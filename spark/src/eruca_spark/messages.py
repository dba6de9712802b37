"""Read a job's messages from a lake, or from the topics themselves."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from eruca.exporting.columns import DAMAGE
from eruca.exporting.errors import OptionError
from eruca.exporting.exports import Exports
from eruca.exporting.options import Options
from eruca_spark.lake import Lake, read_lake
from eruca_spark.reports.basis import Lacks
from eruca_spark.reports.shown_command import without_secrets


@dataclass(frozen=True, slots=True)
class MessageSource:
    """A lake, or a query service that exports topics."""

    lake: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)  # of the data source

    def check(self, topics: Sequence[str]) -> None:
        """Check the options, without Spark.

        Raises:
            OptionError: An option is missing, unknown or invalid.
        """
        if self.lake is None:
            Options.parse({**self.options, "topic": ",".join(topics)})
        elif self.options.keys() - {"url"}:
            raise OptionError("options of the data source cannot be used with a lake")

    def held(self, spark: SparkSession) -> AbstractContextManager[None]:
        """Keep the files of a lake until the block ends, whatever a maintenance does."""
        return nullcontext() if self.lake is None else Lake(spark, self.lake).files.reading()

    def text(self, topics: Sequence[str]) -> str:
        """Return the lake or the query services, without secrets."""
        if self.lake is not None:
            return without_secrets(self.lake)
        options = Options.parse({**self.options, "topic": ",".join(topics)})
        return "; ".join(map(without_secrets, options.urls))

    def lacks(self, spark: SparkSession, topics: Sequence[str]) -> Lacks:
        """Return the losses that the source knows of.

        Brokers can be away only if the options tolerate losses. Otherwise reading waits for them,
        and fails in the end.
        """
        if self.lake is not None:
            manifests = Lake(spark, self.lake).manifests()
            return Lacks(
                deleted_count=sum(one.missing_rows for one in manifests),
                may_lack=any(one.missing_rows for one in manifests),
            )
        options = Options.parse({**self.options, "topic": ",".join(topics)})
        if options.fail_on_data_loss:
            return Lacks()
        return Lacks(away=Exports(options).away(topics), may_lack=True)

    def sound_messages(
        self, spark: SparkSession, topics: Sequence[str], columns: Sequence[str] = ()
    ) -> DataFrame:
        """Return :meth:`messages` without damaged messages, which have no content."""
        return sound(self.messages(spark, topics, columns))

    def messages(
        self, spark: SparkSession, topics: Sequence[str], columns: Sequence[str] = ()
    ) -> DataFrame:
        """Return the messages of *topics*; for a lake, of all its topics if none is given.

        Args:
            spark: A session.
            topics: The topics. A topic without messages in a lake is named on stderr.
            columns: The required columns, because Spark does not pass them to a Python source;
                default: all. Columns that identify damaged messages are always included.

        Raises:
            LakeError: There is no lake.
        """
        if self.lake is None:
            options = {**self.options, "topic": ",".join(topics)}
            if columns:
                options["columns"] = ",".join(dict.fromkeys((*columns, DAMAGE)))
            return spark.read.format("eruca").options(**options).load()
        rows = read_lake(spark, self.lake)
        if not topics:
            return rows
        held = {
            one.queue.topic
            for manifest in Lake(spark, self.lake).manifests()
            for one in manifest.ranges
        }
        for topic in sorted({*topics} - held):
            has = ", ".join(sorted(held)) or "no topic"
            sys.stderr.write(f"{self.lake} has no message of {topic}; its topics: {has}\n")
        return rows.where(f.col("topic").isin([*topics]))


def sound(messages: DataFrame) -> DataFrame:
    """Omit damaged messages, which have no content."""
    return messages.where(f.col(DAMAGE).isNull())
