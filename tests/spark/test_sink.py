"""Frames and streams written to topics of a real cluster: each row once, whatever fails."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from eruca_spark.compaction import latest_by_key
from support import sink_driver
from support.export_cluster import ExportCluster, command, export_cluster
from support.waiting import wait_until

DRIVER_SECONDS: Final = 300.0
PYTHONPATH: Final = str(Path(sink_driver.__file__).parents[1])


@pytest.fixture(scope="module")
def cluster() -> Iterator[ExportCluster]:
    with export_cluster() as running:
        yield running


@pytest.fixture
def topic(cluster: ExportCluster, request: pytest.FixtureRequest) -> str:
    name = str(request.node.originalname).removeprefix("test_").replace("_", "-")[:100]
    with cluster.client() as client:
        client.admin.create_topic(name, queue_count=2)
    return name


def stored(spark: SparkSession, cluster: ExportCluster, topic: str) -> DataFrame:
    given = {"url": cluster.url, "topic": topic}
    return spark.read.format("eruca").options(**given).load()


def bodies(spark: SparkSession, cluster: ExportCluster, topic: str) -> Counter[str]:
    rows = stored(spark, cluster, topic).select("body").collect()
    return Counter(bytes(row.body).decode() for row in rows)


def count(cluster: ExportCluster, topic: str) -> int:
    with cluster.client() as client:
        return sum(held.max_offset for held in client.admin.queues(topic).values())


def write(rows: DataFrame, cluster: ExportCluster, **options: str) -> None:
    writer = rows.write.format("eruca").mode("append").option("namesrv", cluster.namesrvs)
    writer.options(**options).save()


def stream(rows: DataFrame, cluster: ExportCluster, checkpoint: Path, **options: str) -> None:
    writer = rows.writeStream.format("eruca").option("namesrv", cluster.namesrvs)
    writer = writer.options(**options).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


def orders(spark: SparkSession, rows: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, rows, numPartitions=partitions).select(
        f.concat(f.lit("order "), "id").alias("body"), f.concat(f.lit("k"), "id").alias("key")
    )


def test_a_frame_is_written_with_all_that_a_message_has(
    spark: SparkSession, cluster: ExportCluster, topic: str
) -> None:
    rows = spark.sql(
        f"""select '{topic}' as topic, encode('a', 'utf-8') as body, array('k1', 'k2') as keys,
        'new' as tag, map('colour', 'red') as properties, 's' as sharding_key,
        timestamp '2020-01-01 00:00:00' as deliver_at, 7 as flag, false as deleted"""
    )
    write(rows, cluster)

    [row] = stored(spark, cluster, topic).collect()
    assert (bytes(row.body), row["keys"], row.tag, row.flag) == (b"a", ["k1", "k2"], "new", 7)
    assert (row.properties, row.sharding_key) == ({"colour": "red"}, "s")


@pytest.mark.parametrize(
    ("columns", "mode", "told"),
    [
        (["body", "key", "id"], "append", "unknown column id, whose values would be lost"),
        (["key"], "append", "column body is missing"),
        (["body"], "overwrite", "messages cannot be overwritten"),
    ],
)
def test_nothing_is_sent_of_a_frame_that_does_not_fit(  # noqa: PLR0917 - fixtures
    spark: SparkSession,
    cluster: ExportCluster,
    topic: str,
    columns: list[str],
    mode: str,
    told: str,
) -> None:
    rows = orders(spark, 10).withColumn("id", f.lit(1)).select(*columns)
    writer = rows.write.format("eruca").mode(mode).option("namesrv", cluster.namesrvs)

    with pytest.raises(PySparkException, match=told):
        writer.option("topic", topic).save()
    assert count(cluster, topic) == 0


def test_a_task_that_fails_and_runs_again_sends_each_row_once(
    spark: SparkSession, cluster: ExportCluster, topic: str, tmp_path: Path
) -> None:
    """Half of the rows have been sent when the first attempt fails."""
    marks = str(tmp_path)

    @f.udf("string", useArrow=False)  # the other kind needs pandas
    def failing_once(body: str) -> str:
        mark = Path(marks) / "failed"
        if body == "order 2500" and not mark.exists():
            mark.touch()
            raise RuntimeError("as told")
        return body

    rows = orders(spark, 3_000, partitions=1)
    write(rows.withColumn("body", failing_once("body")), cluster, topic=topic)

    assert (tmp_path / "failed").exists()
    assert bodies(spark, cluster, topic) == Counter(f"order {n}" for n in range(3_000))


def test_a_named_write_that_failed_is_completed_and_says_what_is_stored(
    spark: SparkSession, cluster: ExportCluster, topic: str
) -> None:
    rows = orders(spark, 3_000, partitions=1)
    bad = rows.withColumn("body", f.when(f.col("body") != "order 2500", f.col("body")))

    told = "partition 0, row 2500: .* found null; .*Acknowledged of this partition: 2000 messages"
    with pytest.raises(PySparkException, match=told):
        write(bad, cluster, topic=topic, idempotencyPrefix="load-1")
    assert count(cluster, topic) == 2_000
    write(rows, cluster, topic=topic, idempotencyPrefix="load-1")
    write(rows, cluster, topic=topic, idempotencyPrefix="load-1")

    assert bodies(spark, cluster, topic) == Counter(f"order {n}" for n in range(3_000))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (4, 1, "had more than this one's 1 partitions: its message 'load-4-1-1-0-0' of"),
        (1, 2, "earlier attempt of partition 0 had more rows: its message 'load-1-2-0-2-0'"),
        (2, 4, "earlier attempt of partition 0 had more rows|an earlier attempt sent other rows"),
    ],
)
def test_a_named_write_that_runs_again_in_other_partitions_is_an_error(  # noqa: PLR0917 - fixtures
    spark: SparkSession, cluster: ExportCluster, topic: str, before: int, after: int, told: str
) -> None:
    """Each of the first partitions is whole batches, so its part of the second is known."""
    named = {"topic": topic, "idempotencyPrefix": f"load-{before}-{after}"}
    write(orders(spark, 4_000, before), cluster, **named)

    with pytest.raises(PySparkException, match=told) as failed:
        write(orders(spark, 4_000, after), cluster, **named)
    assert "idempotencyKeyColumn" in str(failed.value)


def test_a_micro_batch_that_runs_again_in_fewer_partitions_is_an_error(
    spark: SparkSession, cluster: ExportCluster, topic: str, tmp_path: Path
) -> None:
    for number in range(3):
        orders(spark, 1_000, 1).write.parquet(str(tmp_path / "in" / str(number)))
    files = spark.readStream.schema("body string, key string").parquet(str(tmp_path / "in" / "*"))
    checkpoint = tmp_path / "checkpoint"
    setting = "spark.sql.files.openCostInBytes"
    try:
        spark.conf.set(setting, str(128 * 1024 * 1024))  # a task for each file
        stream(files, cluster, checkpoint, topic=topic)
        assert count(cluster, topic) == 3_000
        for commit in (checkpoint / "commits").iterdir():
            commit.unlink()
        spark.conf.unset(setting)
        with pytest.raises(PySparkException, match="had more than this one's 1 partitions"):
            stream(files.coalesce(1), cluster, checkpoint, topic=topic)
        stream(files.coalesce(1), cluster, checkpoint, topic=topic, failOnDoubledRows="false")
    finally:
        spark.conf.unset(setting)


def test_a_micro_batch_that_runs_again_is_stored_once(
    spark: SparkSession, cluster: ExportCluster, topic: str, tmp_path: Path
) -> None:
    orders(spark, 2_500).write.parquet(str(tmp_path / "in"))
    files = spark.readStream.schema("body string, key string").parquet(str(tmp_path / "in"))
    checkpoint = tmp_path / "checkpoint"
    stream(files, cluster, checkpoint, topic=topic)
    for commit in (checkpoint / "commits").iterdir():
        commit.unlink()
    stream(files, cluster, checkpoint, topic=topic)

    assert bodies(spark, cluster, topic) == Counter(f"order {n}" for n in range(2_500))


def test_a_stream_has_no_prefix_and_no_complete_mode(
    spark: SparkSession, cluster: ExportCluster, topic: str, tmp_path: Path
) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("string(value) as body")

    with pytest.raises(PySparkException, match="known by the query and the micro-batch"):
        stream(rows, cluster, tmp_path / "a", topic=topic, idempotencyPrefix="x")
    writer = rows.groupBy("body").count().select("body").writeStream.outputMode("complete")
    writer = writer.format("eruca").option("namesrv", cluster.namesrvs).option("topic", topic)
    with pytest.raises(PySparkException, match="messages cannot be overwritten"):
        writer.option("checkpointLocation", str(tmp_path / "b")).start().awaitTermination()


def until_stored(
    cluster: ExportCluster, topic: str, least: int, driver: subprocess.Popen[str]
) -> None:
    """Return once a topic has so many messages, or the driver has ended."""

    def is_reached() -> bool:
        return count(cluster, topic) >= least or driver.poll() is not None

    wait_until(is_reached, within_seconds=DRIVER_SECONDS)


def test_a_stream_whose_driver_is_killed_stores_each_row_once(
    spark: SparkSession, cluster: ExportCluster, topic: str, tmp_path: Path
) -> None:
    """It is killed with messages of a micro-batch stored that is not finished."""
    seed = Random().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - pytest shows it when the test fails
    random, rows = Random(seed), 20_000
    orders(spark, rows, partitions=4).write.parquet(str(tmp_path / "in"))
    checkpoint = tmp_path / "checkpoint"
    program = (sys.executable, sink_driver.__file__)
    arguments = (cluster.namesrvs, topic, str(tmp_path / "in"), str(checkpoint))
    kills = 0
    for _ in range(2):
        least = count(cluster, topic) + random.randrange(1, 3_000)
        with command(*arguments, program=program, environment={"PYTHONPATH": PYTHONPATH}) as driver:
            until_stored(cluster, topic, least, driver)
            driver.send_signal(signal.SIGKILL)
            kills += driver.wait() == -signal.SIGKILL
    before = count(cluster, topic)
    with command(*arguments, program=program, environment={"PYTHONPATH": PYTHONPATH}) as driver:
        output, _ = driver.communicate(timeout=DRIVER_SECONDS)

    assert driver.returncode == 0, output
    assert kills >= 1
    assert before > 0
    assert bodies(spark, cluster, topic) == Counter(f"order {n}" for n in range(rows))


def test_progress_is_shown_as_a_groups_lag_and_a_deletion_ends_a_key(
    spark: SparkSession, cluster: ExportCluster, topic: str, tmp_path: Path
) -> None:
    keys = orders(spark, 30).withColumn("sharding_key", f.col("key"))
    write(keys.withColumn("deleted", f.lit(False)), cluster, topic=topic)
    write(keys.limit(10).withColumn("deleted", f.lit(True)), cluster, topic=topic)
    options = {"namesrv": cluster.namesrvs, "progressGroup": "spark-copy", "url": cluster.url}
    rows = spark.readStream.format("eruca").options(**options, topic=topic).load()
    writer = rows.writeStream.format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()

    with cluster.client() as client:
        assert client.admin.groups.lag("spark-copy").lag == 0
        write(keys.limit(7), cluster, topic=topic)
        assert client.admin.groups.lag("spark-copy").lag == 7
    latest = latest_by_key(stored(spark, cluster, topic), "key").collect()
    assert len(latest) == 27  # 7 of the 10 were written again
    with pytest.raises(PySparkException, match="only a stream or an incremental export"):
        spark.read.format("eruca").options(**options, topic=topic).load().count()
