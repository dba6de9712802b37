"""A topic as a stream, used directly: limits, starts, and Spark's own checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from support.export_service import ExportService


def stream(
    spark: SparkSession, service: ExportService, checkpoint: Path, **options: str
) -> list[int]:
    """Run a stream over what is there, and return how many rows each batch had."""
    counts: list[int] = []

    def count(rows: DataFrame, _: int) -> None:
        counts.append(rows.count())

    given = {"url": service.url, "topic": "orders", "retrySeconds": "5", **options}
    rows = spark.readStream.format("eruca").options(**given).load()
    writer = rows.writeStream.foreachBatch(count).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    return counts


def test_batches_have_the_size_wanted_and_the_checkpoint_goes_on(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 250, 1: 50})

    assert stream(spark, service, tmp_path, maxRowsPerTrigger="100") == [100, 100, 100]
    service.hold("orders", {1: 70})
    assert stream(spark, service, tmp_path, maxRowsPerTrigger="100") == [20]
    assert stream(spark, service, tmp_path) == []


def test_what_comes_while_the_stream_runs_is_left_for_the_next_run(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 100})

    def grow() -> None:
        service.hold("orders", {0: service.queues[next(iter(service.queues))][1] + 10})

    service.on_records = grow
    counts = stream(spark, service, tmp_path, maxRowsPerTrigger="50")

    assert counts == [50, 50]


def test_a_stream_from_the_latest_offsets_has_only_what_comes_later(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 100, 1: 0})

    assert sum(stream(spark, service, tmp_path, startingOffsets="latest")) == 0
    service.hold("orders", {0: 103, 1: 4})
    assert stream(spark, service, tmp_path, startingOffsets="latest") == [7]


def test_a_stream_may_begin_at_a_time_or_at_offsets(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 100})
    at = {"startingTimestamp": "2026-11-21T00:00:00.090Z"}

    assert stream(spark, service, tmp_path / "a", **at) == [10]
    assert stream(spark, service, tmp_path / "b", startingOffsets='{"orders/broker-a/0": 95}') == [
        5
    ]


def test_topics_of_a_pattern_that_appear_later_are_read_from_their_beginning(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    """Each run is a restart from the checkpoint; the last one repeats a batch."""
    service.hold("orders-eu", {0: 100}).hold("payments", {0: 7}).hold("%DLQ%orders-eu", {0: 3})
    given = {"topic": "", "subscribePattern": "orders-.*", "startingOffsets": "latest"}

    assert sum(stream(spark, service, tmp_path, **given)) == 0
    service.hold("orders-us", {0: 40, 1: 2}).hold("orders-eu", {0: 101})
    assert stream(spark, service, tmp_path, **given) == [43]
    for commit in ("1", ".1.crc"):
        (tmp_path / "commits" / commit).unlink()
    assert stream(spark, service, tmp_path, **given) == [43]
    service.delete("orders-us").hold("orders-eu", {0: 111})
    with pytest.raises(PySparkException, match="topic orders-us no longer exists"):
        stream(spark, service, tmp_path, **given)
    assert stream(spark, service, tmp_path, **given, failOnDataLoss="false") == [10]


def test_a_stream_has_no_end(spark: SparkSession, service: ExportService, tmp_path: Path) -> None:
    service.hold("orders", {0: 100})

    with pytest.raises(PySparkException, match="endingTimestamp are not supported for a stream"):
        stream(spark, service, tmp_path, endingTimestamp="2026-11-21T00:00:00.090Z")


def test_a_topic_that_was_created_again_is_an_error_or_read_whole(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    """It holds more messages than were read of the earlier one: its offsets look like new ones."""
    assert stream(spark, service.hold("orders", {0: 1_400}), tmp_path) == [1_400]
    service.create_again("orders", {0: 1_600})

    told = r"created again .* from offset 1400 are lost; the new topic has messages 0 to 1599"
    with pytest.raises(PySparkException, match=told):
        stream(spark, service, tmp_path)
    assert stream(spark, service, tmp_path, failOnDataLoss="false") == [1_600]
    assert stream(spark, service, tmp_path) == []


def test_a_checkpoint_of_another_topic_is_refused(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 10}).hold("payments", {0: 10})
    assert stream(spark, service, tmp_path) == [10]

    with pytest.raises(
        PySparkException, match="the checkpoint belongs to orders, which the stream of"
    ):
        stream(spark, service, tmp_path, topic="payments")


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_checkpoint_whose_offsets_are_empty_is_refused(
    spark: SparkSession, service: ExportService, tmp_path: Path, is_committed: bool
) -> None:
    service.hold("orders", {0: 10})
    assert stream(spark, service, tmp_path) == [10]
    logged = tmp_path / "offsets" / "0"
    logged.write_text("\n".join([*logged.read_text().splitlines()[:2], "{}"]))
    (tmp_path / "offsets" / ".0.crc").unlink()
    if not is_committed:
        (tmp_path / "commits" / "0").unlink()

    with pytest.raises(
        PySparkException, match=r"the checkpoint belongs to another source: .*found \{\}"
    ):
        stream(spark, service, tmp_path)


def test_progress_tells_the_ends_of_the_queues(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 250, 1: 50})
    options = {"url": service.url, "subscribe": "orders", "maxOffsetsPerTrigger": "100"}
    rows = spark.readStream.format("eruca").options(**options).load()
    writer = rows.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    query.awaitTermination()

    first = query.recentProgress[0].sources[0]
    ends, read = json.loads(first.latestOffset)["next"], json.loads(first.endOffset)["next"]
    assert {queue: one["offset"] for queue, one in ends.items()} == {
        "orders/broker-a/0": 250,
        "orders/broker-a/1": 50,
    }
    assert sum(one["offset"] for one in read.values()) == 100
