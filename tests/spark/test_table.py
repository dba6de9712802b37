"""A topic as a table: the rows there were when it was loaded, and only what is wanted of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from eruca.exporting.columns import COLUMNS
from eruca.exporting.ranges import Queue
from support.export_service import BEGAN, ExportService, Fault
from support.spark import kill_reader, readers, until_none


def load(spark: SparkSession, service: ExportService, **options: str) -> DataFrame:
    given = {"url": service.url, "topic": "orders", "retrySeconds": "5", **options}
    return spark.read.format("eruca").options(**given).load()


def record_requests(service: ExportService) -> list[str]:
    return [path for path in service.requests if "/records" in path]


def test_the_format_is_found_by_its_name_and_has_every_column(
    spark: SparkSession, service: ExportService
) -> None:
    rows = load(spark, service.hold("orders", {0: 3}))

    assert rows.columns == list(COLUMNS)
    last = rows.orderBy("queue_offset").collect()[-1]
    assert last.asDict() | {"stored_at": None, "born_at": None} == {
        "topic": "orders",
        "broker_name": "broker-a",
        "queue_id": 0,
        "queue_offset": 2,
        "log_offset": 400,
        "stored_at": None,
        "born_at": None,
        "message_id": f"{0:08X}{2:024X}",
        "offset_message_id": f"{2:032X}",
        "tag": "even",
        "keys": ["key-2"],
        "sharding_key": "shard-2",
        "body": bytearray(b"orders/broker-a/0/2"),
        "properties": {"colour": "red"},
        "reconsume_times": 0,
        "sys_flag": 0,
        "flag": 0,
        "prepared_offset": 0,
        "size": 200,
        "damage": None,
    }


def test_sql_has_a_topic_as_a_temporary_view(spark: SparkSession, service: ExportService) -> None:
    service.hold("orders", {0: 30, 1: 12})
    options = f"OPTIONS (url '{service.url}', topic 'orders')"

    spark.sql(f"CREATE TEMPORARY VIEW seen USING eruca {options}")
    [row] = spark.sql("SELECT count(*), max(queue_offset) FROM seen WHERE tag = 'even'").collect()
    spark.catalog.dropTempView("seen")

    assert tuple(row) == (21, 28)


def test_all_queues_are_read_in_tasks_of_the_size_wanted(
    spark: SparkSession, service: ExportService
) -> None:
    service.hold("orders", {0: 1_000, 1: 700, 2: 0, 3: 1})
    rows = load(spark, service, partitionRows="600")

    assert rows.rdd.getNumPartitions() == 3
    assert rows.count() == 1_701
    assert rows.select("queue_id", "queue_offset").distinct().count() == 1_701


def test_every_frame_of_one_load_sees_the_same_rows_while_the_queue_grows(
    spark: SparkSession, service: ExportService
) -> None:
    rows = load(spark, service.hold("orders", {0: 100}))
    first = rows.where("queue_offset >= 50")
    counts = [rows.count(), first.count()]
    service.hold("orders", {0: 900, 1: 50})

    counts += [rows.count(), first.count(), rows.where("queue_offset >= 90").count()]
    joined = first.alias("a").join(rows.where("queue_id = 0").alias("b"), "queue_offset").count()
    assert counts == [100, 50, 100, 50, 10]
    assert joined == 50
    assert load(spark, service).count() == 950


def test_a_topic_without_messages_is_an_empty_table(
    spark: SparkSession, service: ExportService
) -> None:
    rows = load(spark, service.hold("orders", {0: 0}))

    assert rows.count() == 0
    assert rows.collect() == []


def test_several_topics_are_one_table(spark: SparkSession, service: ExportService) -> None:
    service.hold("orders", {0: 10}).hold("%DLQ%billing", {0: 5})
    rows = load(spark, service, topic="orders,%DLQ%billing")

    counts = {row["topic"]: row["count"] for row in rows.groupBy("topic").count().collect()}
    assert counts == {"orders": 10, "%DLQ%billing": 5}


def test_the_topics_of_a_pattern_are_fixed_at_the_load(
    spark: SparkSession, service: ExportService
) -> None:
    service.hold("orders-eu", {0: 10}).hold("orders-us", {0: 5}).hold("%DLQ%orders-eu", {0: 3})
    given = {"topic": "", "subscribePattern": "orders-.*"}
    rows = load(spark, service, **given)
    service.hold("orders-asia", {0: 7})

    counts = {row["topic"]: row["count"] for row in rows.groupBy("topic").count().collect()}
    assert counts == {"orders-eu": 10, "orders-us": 5}
    assert load(spark, service, **given).count() == 22
    assert load(spark, service, topic="", subscribePattern="%DLQ%.*").count() == 3
    with pytest.raises(PySparkException, match="found 'order'; topics that may be read: orders-as"):
        load(spark, service, topic="", subscribePattern="order")


def test_only_the_columns_wanted_are_asked_for(spark: SparkSession, service: ExportService) -> None:
    rows = load(spark, service.hold("orders", {0: 10}), columns="tag,queue_offset")

    assert rows.columns == ["tag", "queue_offset"]
    assert rows.where("tag = 'even'").count() == 5
    assert "columns=tag%2Cqueue_offset&" in record_requests(service)[-1]


CONDITIONS = [
    ("queue_id = 1 AND queue_offset BETWEEN 10 AND 19", 10),
    ("queue_offset = 7", 2),
    ("queue_offset IN (7, 9)", 4),
    ("broker_name = 'broker-b'", 0),
    ("queue_id > 0", 300),
    ("queue_id = 0 AND stored_at < timestamp'2026-11-21 00:00:00.040'", 40),
    ("queue_id = 0 AND (queue_offset < 5 OR tag IS NULL)", 53),
    ("tag = 'even'", 200),
]


@pytest.fixture(params=["true", "false"])
def filter_pushdown(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    """Set whether Spark offers conditions to sources; a user may have set it for another one."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, request.param)
    yield
    spark.conf.unset(name)


@pytest.mark.usefixtures("filter_pushdown")
def test_every_query_of_one_load_has_its_own_rows(
    spark: SparkSession, service: ExportService
) -> None:
    """Planned first and run later, each twice, in turns, and whole in between."""
    rows = load(spark, service.hold("orders", {0: 100, 1: 300}))
    frames = [rows.where(condition) for condition, _ in CONDITIONS]
    for frame in frames:
        frame._jdf.queryExecution().executedPlan()
    expected = [count for _, count in CONDITIONS]

    assert [frame.count() for frame in frames] == expected
    assert rows.count() == 400
    assert [len(frame.collect()) for frame in reversed(frames)] == expected[::-1]
    assert rows.agg(f.count_distinct("queue_id", "queue_offset")).collect()[0][0] == 400


@pytest.mark.usefixtures("filter_pushdown")
def test_joins_unions_caches_and_limits_of_one_load_miss_no_rows(
    spark: SparkSession, service: ExportService
) -> None:
    rows = load(spark, service.hold("orders", {0: 100, 1: 300}))
    low, high = rows.where("queue_offset < 10"), rows.where("queue_offset >= 90")

    assert low.union(high).count() == 20 + 10 + 210
    assert low.limit(5).count() == 5
    assert rows.count() == 400
    cached = low.cache()
    assert (cached.count(), high.count(), cached.count(), rows.count()) == (20, 220, 20, 400)
    joined = low.alias("a").join(high.alias("b"), f.expr("a.queue_id = b.queue_id"))
    assert joined.count() == 10 * 10 + 10 * 210
    assert low.join(rows, ["queue_id", "queue_offset"]).count() == 20
    assert rows.join(low, ["queue_id", "queue_offset"], "left_anti").count() == 380
    assert rows.limit(3).union(rows.where("queue_id = 1")).count() == 303
    cached.unpersist()


def test_a_table_may_begin_and_end_at_offsets(spark: SparkSession, service: ExportService) -> None:
    service.hold("orders", {0: 100, 1: 100})
    offsets = {"startingOffsets": '{"orders/broker-a/0": 90}', "endingOffsets": "latest"}

    assert load(spark, service, **offsets).count() == 110
    offsets["endingOffsets"] = '{"orders/broker-a/0": 95, "orders/broker-a/1": 5}'
    assert load(spark, service, **offsets).count() == 10


def test_a_table_may_begin_and_end_at_times(spark: SparkSession, service: ExportService) -> None:
    service.hold("orders", {0: 100, 1: 100})
    times = {
        "startingTimestamp": (BEGAN + timedelta(milliseconds=30)).isoformat(),
        "endingTimestamp": (BEGAN + timedelta(milliseconds=45)).isoformat(),
    }

    assert load(spark, service, **times).count() == 30


def test_a_task_whose_worker_is_killed_is_done_again(
    spark: SparkSession, service: ExportService
) -> None:
    """SIGKILL of a process that reads, once, while it waits for its rows."""
    rows = load(spark, service.hold("orders", {0: 4_000}), partitionRows="1000")
    killed: list[int | None] = []

    def kill_one() -> None:
        if not killed:
            killed.append(kill_reader(service.url))

    service.on_records = kill_one

    assert rows.select(f.sum("queue_offset")).collect()[0][0] == sum(range(4_000))
    assert killed != [None]
    assert len(record_requests(service)) >= 5


def test_a_query_that_wants_no_more_rows_leaves_no_connection_behind(
    spark: SparkSession, service: ExportService
) -> None:
    """The rest is much more than sockets take in: the service would wait for its reader."""
    rows = load(spark, service.hold("orders", {0: 60_000}))

    assert len(rows.take(5)) == 5

    until_none(lambda: list(readers(service.url)))


def test_a_service_that_breaks_off_is_not_noticed(
    spark: SparkSession, service: ExportService
) -> None:
    service.hold("orders", {0: 2_000})
    service.faults.extend(
        [Fault(cut_after_batches=1), Fault(cut_after_batches=2, cut_in_batch=True)]
    )

    assert load(spark, service).select("queue_offset").distinct().count() == 2_000


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"colour": "red"}, "unknown option 'colour'"),
        ({"columns": "colour"}, "option columns"),
        ({"startingOffsets": "latest"}, "earliest offsets"),
        ({"endingOffsets": '{"orders/broker-a/0": 11}'}, "expected at most 10, .* found 11"),
        ({"startingOffsets": '{"orders/broker-a/0": 11}'}, "expected at most 10, .* found 11"),
        ({"startingOffsets": '{"orders/broker-a/2": 0}'}, "unknown queue orders/broker-a/2"),
        ({"endingOffsets": '{"orders/broker-z/0": 3}'}, "unknown queue orders/broker-z/0"),
        ({"endingOffsets": '{"orders/broker-a/1": 4}'}, "messages 4 to 4 .* deleted"),
        (
            {
                "startingOffsets": '{"orders/broker-a/0": 9}',
                "endingOffsets": '{"orders/broker-a/0": 8}',
            },
            r"expected at least 9 \(startingOffsets\) for orders/broker-a/0, found 8",
        ),
        ({"startingOffsets": '{"orders/broker-a/1": 3}'}, "messages 3 to 4"),
    ],
)
def test_what_cannot_be_is_said_when_the_table_is_loaded(
    spark: SparkSession, service: ExportService, options: dict[str, str], told: str
) -> None:
    service.hold("orders", {0: 10})
    service.queues[Queue("orders", "broker-a", 1)] = (5, 10)

    with pytest.raises(PySparkException, match=told):
        load(spark, service, **options).count()


def test_a_schema_of_one_s_own_is_refused(spark: SparkSession, service: ExportService) -> None:
    service.hold("orders", {0: 10})
    reader = spark.read.format("eruca").options(url=service.url, topic="orders")

    with pytest.raises(PySparkException, match="use the option columns"):
        reader.schema("tag STRING").load().count()


def test_exact_ranges_are_read_by_as_many_tasks_as_wanted(
    spark: SparkSession, service: ExportService
) -> None:
    service.hold("orders", {0: 500, 1: 250})
    ranges = [
        {"topic": "orders", "broker_name": "broker-a", "queue_id": 0} | span for span in SPANS
    ]
    given = {"url": service.url, "topic": "orders", "ranges": json.dumps(ranges)}
    rows = spark.read.format("eruca").options(**given, minPartitions="3").load()

    assert sorted(row.queue_offset for row in rows.collect()) == [*range(10, 40), *range(90, 96)]
    assert rows.rdd.getNumPartitions() >= 3


SPANS = [{"from_offset": 10, "to_offset": 40}, {"from_offset": 90, "to_offset": 96}]
