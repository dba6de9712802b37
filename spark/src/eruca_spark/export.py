"""The export: topics into a lake, each message once, even if it is killed and restarted.

Spark's checkpoint is the only record of progress. It fixes the ranges of a batch before the batch
begins, so an interrupted batch runs again with the same rows. This module makes writing a batch
repeatable. It first deletes what an interrupted run has left of the batch. It compares the number
of rows with the ranges. It writes the manifest last.

Spark's own Parquet sink is not used: it is exactly-once only for readers that know its log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from eruca.exporting.columns import DAMAGE, SCHEMA_VERSION
from eruca.exporting.exported import Exported, Watch
from eruca.exporting.exports import Exports
from eruca.exporting.options import Options
from eruca.exporting.planner import BatchPlanner
from eruca.exporting.ranges import Range
from eruca_spark.bodies.columns import check_described, with_body_columns
from eruca_spark.bodies.given import INFER
from eruca_spark.bodies.json_bodies import inferred_schema
from eruca_spark.bodies.schema import NO_SCHEMA, REASON, BodySchema, settled_schema
from eruca_spark.checkpoint import finished_position, query_id, ranges_of
from eruca_spark.lake import REJECTED, Lake, LakeError, Manifest, is_another
from eruca_spark.layout import settled_layout
from eruca_spark.parquet import WRITER_OPTIONS, parquet_settings

# Spark gives the process that plans batches 10 s to start. On a busy machine this fails the query.
# Nothing has happened by then, so the query can be started again.
_SLOW_START: Final = "Python worker failed to connect back"
# two minutes; if a machine is still too busy then, the cause is another one
_STARTS_MAX: Final = 12
_LOOK_SECONDS: Final = 0.1  # between two checks: less than the time between batches


@dataclass(slots=True)
class LakeExported(Exported):
    """The result of an export to a lake."""

    rejected_rows: int = 0  # their bodies do not fit the schema


def run_export(
    spark: SparkSession,
    lake_root: str,
    options: Mapping[str, str],
    *,
    partition_by: str | None = None,
    target_file_mib: int | None = None,
    body_schema: BodySchema | Literal["infer"] | None = None,
    every_seconds: float | None = None,
    watch: Watch = lambda _: None,
    looked: Watch = lambda _: None,
    is_over: Callable[[], bool] = lambda: False,
) -> LakeExported:
    """Export the present messages, or export for ever; return the result.

    Args:
        spark: A session.
        lake_root: The lake: a path, or a URI that every executor can reach.
        options: The data source's options.
        partition_by: The directories of a new lake; None: its own, or topic and day.
        target_file_mib: The size of files that maintenance of a new lake aims for.
        body_schema: The fields of bodies that become columns; ``infer``: those of JSON bodies in a
            sample of the first batch; None: those that the lake has.
        every_seconds: Interval of looking for new messages; None: stop at the end.
        watch: Called from time to time.
        looked: With *every_seconds*, called after looks for new messages that ended without an
            error: each one that found some, and others at times.
        is_over: Called from time to time; after it returns true, the running batch is the last.

    Raises:
        LakeBusyError: Another export writes to this lake.
        LakeError: The lake has data that is not from this export.
        OptionError: The lake has other directories, another type of a field, or bodies of another
            format.
        StreamingQueryException: The source or a batch failed.
    """
    lake = Lake(spark, lake_root)
    done = LakeExported()
    with lake.files.locked():
        lake.delete_abandoned()
        lake.layout = settled_layout(
            lake.files, partition_by, target_file_mib, is_new=not lake.exists
        )
        if isinstance(body_schema, BodySchema):
            lake.schema = settled_schema(lake.files, body_schema)
        elif body_schema == INFER:
            lake.schema.check_format(NO_SCHEMA)
        check_described(lake.schema)
        rows = spark.readStream.format("eruca").options(**options).load()
        batches = BatchWriter(lake, options, done, infers=body_schema == INFER)
        writer = rows.writeStream.foreachBatch(batches)
        writer = writer.option("checkpointLocation", lake.checkpoint).queryName("eruca-export")
        if every_seconds is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{every_seconds} seconds")
        for starts_left in reversed(range(_STARTS_MAX)):
            try:
                _run(
                    writer,
                    lambda: watch(done),
                    (lambda: looked(done)) if every_seconds is not None else None,
                    lambda: is_over() and not batches.is_writing,
                )
                break
            except StreamingQueryException as error:
                if _SLOW_START not in str(error) or not starts_left:
                    raise
    watch(done)
    return done


def finds_nothing(
    lake: Lake,
    options: Mapping[str, str],
    *,
    partition_by: str | None = None,
    target_file_mib: int | None = None,
    body_schema: BodySchema | Literal["infer"] | None = None,
) -> bool:
    """Tell without Spark whether :func:`run_export` would find nothing new.

    This is known if Spark's checkpoint has no batch under way, the source plans none after it, and
    the lake keeps the schema of bodies already.

    Args:
        lake: A lake on this machine.
        options: As there.
        partition_by: As there.
        target_file_mib: As there.
        body_schema: As there.

    Raises:
        LakeBusyError: As there.
        LakeError: As there.
        OptionError: As there.
        SourceError: The source refuses the position, or there was no answer.
    """
    with lake.files.locked():
        position = finished_position(lake.files)
        has_more = isinstance(body_schema, BodySchema) and not lake.schema.contains(body_schema)
        if position is None or has_more:
            return False  # only Spark can repeat the batch, or knows the types
        settled_layout(lake.files, partition_by, target_file_mib, is_new=False)
        if body_schema == INFER:
            lake.schema.check_format(NO_SCHEMA)
        planner = BatchPlanner(Options.parse(options))
        planner.fix_end()
        return planner.next(position, None) == position


def _run(
    writer: DataStreamWriter,
    look: Callable[[], None],
    looked: Callable[[], None] | None,
    may_stop: Callable[[], bool],
) -> None:
    query = writer.start()
    known: str | None = None  # the time of the last look that Spark has reported
    try:
        # type: it takes parts of a second as well
        while not (query.awaitTermination(_LOOK_SECONDS) or may_stop()):  # type: ignore[arg-type]
            look()
            if looked is None or (progress := query.lastProgress) is None:
                continue
            if progress.timestamp != known:
                known = progress.timestamp
                looked()
    finally:
        if query.isActive:
            query.stop()


def waiting_rows(lake: Lake, options: Mapping[str, str]) -> int:
    """Return the number of messages that the lake does not have yet."""
    parsed = Options.parse(options)
    ends = {one.queue: one for manifest in lake.manifests() for one in manifest.ranges}
    exports = Exports(parsed)
    held = exports.held(exports.topics(), starting_at=parsed.starting_at)
    rows = 0
    for queue, now in held.items():
        start = now.start
        if queue in ends and not is_another(ends[queue], Range(queue, 0, 0, now.topic_id)):
            start = max(start, ends[queue].end)
        rows += max(0, now.end - start)
    return rows


class BatchWriter:
    """Writes a micro-batch; writing it again changes nothing."""

    def __init__(
        self, lake: Lake, options: Mapping[str, str], done: LakeExported, *, infers: bool = False
    ) -> None:
        self._lake = lake
        self._infers = infers
        self._may_miss = options.get("failOnDataLoss", "true").lower() == "false"
        self._done = done
        self.is_writing = False  # do not stop Spark now: it would log errors about the rest

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write the batch, count its rows, and write its manifest.

        Raises:
            LakeError: The number of rows is wrong, or the lake has another batch with this number.
        """
        self.is_writing = True
        try:
            with self._lake.files.writing():
                self._write(rows, batch)
        finally:
            self.is_writing = False

    def _write(self, rows: DataFrame, batch: int) -> None:
        lake = self._lake
        ranges = ranges_of(lake.files, batch)
        query = query_id(lake.files)
        finished = lake.covering(batch)
        if finished is not None:
            if not finished.stands_for(batch, query, ranges):
                raise LakeError(
                    f"{lake.root} has another batch {batch}, from a deleted checkpoint; export"
                    " into an empty directory"
                )
            return  # killed between the manifest and the checkpoint's commit
        lake.delete_batch(batch)
        expected = sum(one.rows for one in ranges)
        if expected and self._infers and not lake.schema.fields:
            lake.schema = settled_schema(lake.files, inferred_schema(rows))
        written, damaged, rejected = _write(rows, batch, lake) if expected else (0, 0, 0)
        if written > expected or (written < expected and not self._may_miss):
            raise LakeError(f"expected {expected} rows in batch {batch}, found {written}")
        lake.finish(
            Manifest(
                batch=batch,
                query_id=query,
                schema_version=SCHEMA_VERSION,
                ranges=ranges,
                rows=written,
                missing_rows=expected - written,
                written_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
                files=lake.batch_files(batch),
                damaged_rows=damaged,
                rejected_rows=rejected,
            )
        )
        self._done.count(ranges, written, damaged)
        self._done.rejected_rows += rejected


def _write(rows: DataFrame, batch: int, lake: Lake) -> tuple[int, int, int]:
    """Write the rows of a batch; return the numbers of all, damaged and rejected ones."""
    counted = Observation()
    with parquet_settings(rows.sparkSession):
        has_schema = bool(lake.schema.fields)
        typed = with_body_columns(rows, lake.schema) if has_schema else rows
        observed = typed.observe(
            counted,
            f.count(f.lit(1)).alias("rows"),
            f.count(DAMAGE).alias("damaged"),
            f.count(REASON if has_schema else f.lit(None)).alias("rejected"),
        )
        fitting = observed.where(f"{REASON} IS NULL").drop(REASON) if has_schema else observed
        _write_to(lake.root, fitting, batch, lake)
        total, damaged, rejected = (
            int(counted.get[name]) for name in ("rows", "damaged", "rejected")
        )
        if rejected:
            _write_rejected(rows, typed, batch, lake, rejected)
    return total, damaged, rejected


def _write_rejected(
    rows: DataFrame, typed: DataFrame, batch: int, lake: Lake, expected: int
) -> None:
    """Write the rows that do not fit, which the source sends again: usually there are none."""
    counted = Observation()
    misfits = typed.where(f"{REASON} IS NOT NULL").select(*rows.columns, REASON)
    observed = misfits.observe(counted, f.count(f.lit(1)).alias("rows"))
    _write_to(f"{lake.root}/{REJECTED}", observed, batch, lake)
    if (found := int(counted.get["rows"])) != expected:
        raise LakeError(f"expected {expected} rejected rows in batch {batch}, found {found}")


def _write_to(root: str, rows: DataFrame, batch: int, lake: Lake) -> None:
    writer = lake.layout.with_columns(rows, batch).write.mode("overwrite")
    writer = writer.partitionBy(*lake.layout.columns).options(**WRITER_OPTIONS)
    writer.option("partitionOverwriteMode", "dynamic").parquet(root)
