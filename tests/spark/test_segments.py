"""Segments of stopped and running brokers, of a tier and of backups: the rows of topics."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from eruca.exporting.columns import COLUMNS
from support.command_line import Eruca
from support.export_cluster import ExportCluster, export_cluster
from support.waiting import wait_until

SEGMENT_BYTES = 1024**2
BROKERS = ("broker-a", "broker-b")
TOPICS = "orders,rare,RMQ_SYS_TRANS_HALF_TOPIC,rmq_sys_wheel_timer"


@dataclass(frozen=True)
class World:
    """The files that brokers have left, and the rows that the source of topics had of them."""

    stores: dict[str, Path]  # stopped in order
    live: dict[str, Path]  # copies of them while their brokers ran
    tier: Path
    backups: Path
    rows: dict[tuple[str, int], Row]  # by broker and log offset
    tiered_to: dict[str, int]  # log offset up to which each broker's tier has its log


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("segments")
    settings = {
        "ERUCA_BROKER_SEGMENT_BYTES": str(SEGMENT_BYTES),
        "ERUCA_BROKER_TIER_URL": str(directory / "tier"),
        "ERUCA_BROKER_TIER_UPLOAD_RATE_MAX": "0",
    }
    with export_cluster(settings=settings) as cluster:
        live(cluster)
        tiered_to = {name: until_tiered(url) for name, url in urls(cluster).items()}
        eruca = Eruca(cluster.namesrvs)
        for name in BROKERS:
            eruca("backup", "create", name, f"--repository={directory / 'backups'}")
        rows = topic_rows(spark, cluster)
        stores = {
            one.name: one.directory / "store"
            if (one.directory / "store").is_dir()
            else one.directory
            for one in cluster.cluster.plan.brokers
        }
        copies = {
            name: shutil.copytree(path, directory / "live" / name) for name, path in stores.items()
        }
        for name in BROKERS:
            cluster.cluster.stop_one(name)
        yield World(stores, copies, directory / "tier", directory / "backups", rows, tiered_to)


def urls(cluster: ExportCluster) -> dict[str, str]:
    return cluster.cluster.broker_urls


def live(cluster: ExportCluster) -> None:
    """Leave messages of every kind, across several segments of each broker."""
    for name, url in urls(cluster).items():
        with httpx.Client(base_url=f"{url}/v1", timeout=60.0) as broker:
            post(broker, "/topics/rare/messages", {"body": {"text": "only one"}})
            later = {"body": {"text": "later"}, "delay_seconds": 3_600}
            post(broker, "/topics/orders/messages", later)
            half = {"body": {"text": "half"}}
            begun = {"topic": "orders", "producer_group": "shop", "message": half}
            first = post(broker, "/transactions", begun)
            post(broker, "/transactions", begun)
            post(
                broker,
                f"/transactions/{first['transaction_id']}:commit",
                {"producer_group": "shop"},
            )
            for number in range(40):
                body = {"text": f"{name}/{number}:" + "x" * 100_000}
                message: dict[str, Any] = {"body": body, "keys": [f"k{number}", "all"]}
                message |= {"tag": ("red", "blue")[number % 2], "properties": {"n": str(number)}}
                post(broker, "/topics/orders/messages", message)


def post(broker: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = broker.post(path, json=body)
    assert answer.is_success, answer.text
    document: dict[str, Any] = answer.json() if answer.content else {}
    return document


def until_tiered(url: str) -> int:
    """Wait until the tier has the closed segments of a broker; return their end."""

    def status() -> dict[str, Any]:
        document: dict[str, Any] = httpx.get(f"{url}/v1/status").json()
        return document

    end = status()["log"]["max_offset"] // SEGMENT_BYTES * SEGMENT_BYTES
    wait_until(lambda: status()["tier"]["max_offset"] == end)
    return int(end)


def topic_rows(spark: SparkSession, cluster: ExportCluster) -> dict[tuple[str, int], Row]:
    options = {"url": cluster.url, "topic": TOPICS}
    wait_until(lambda: spark.read.format("eruca").options(**options).load().count() > 0)
    return by_place(spark.read.format("eruca").options(**options).load())


def by_place(frame: DataFrame) -> dict[tuple[str, int], Row]:
    rows = frame.collect()
    found = {(row["broker_name"], row["log_offset"]): row for row in rows}
    assert len(found) == len(rows)
    return found


@contextmanager
def told(pattern: str) -> Iterator[None]:
    with pytest.raises(PySparkException, match=pattern):
        yield


def load(spark: SparkSession, place: Path, **options: str) -> DataFrame:
    given = {"topic": TOPICS, "broker": "broker-a", **options}
    return spark.read.format("eruca-segments").options(**given).load(str(place))


def test_stopped_stores_have_the_rows_of_their_topics_in_all_columns(
    spark: SparkSession, world: World
) -> None:
    found: dict[tuple[str, int], Row] = {}
    for name, path in world.stores.items():
        frame = load(spark, path, broker=name)
        assert frame.columns == list(COLUMNS)
        found |= by_place(frame)

    assert found == world.rows
    assert {row["topic"] for row in found.values()} >= {
        "orders",
        "rare",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "rmq_sys_wheel_timer",
    }
    assert len({row["log_offset"] // SEGMENT_BYTES for row in found.values()}) > 2


def test_a_tier_has_the_rows_of_its_segments(spark: SparkSession, world: World) -> None:
    frame = load(spark, world.tier, broker=",".join(BROKERS), cluster="eruca")

    assert by_place(frame) == {
        place: row for place, row in world.rows.items() if place[1] < world.tiered_to[place[0]]
    }


def test_backups_have_all_rows(spark: SparkSession, world: World) -> None:
    assert by_place(load(spark, world.backups, broker=",".join(BROKERS))) == world.rows


def test_a_running_store_has_the_rows_of_its_closed_and_flushed_segments(
    spark: SparkSession, world: World
) -> None:
    for name, path in world.live.items():
        found = by_place(load(spark, path, broker=name))

        its = {place: row for place, row in world.rows.items() if place[0] == name}
        end = max((offset for _, offset in found), default=0)
        assert found == {place: row for place, row in its.items() if place[1] <= end}
        assert end < world.tiered_to[name]


def test_columns_and_rows_may_be_chosen(spark: SparkSession, world: World) -> None:
    start = '{"orders/broker-a/0": 3}'
    frame = load(
        spark,
        world.stores["broker-a"],
        topic="orders",
        columns="queue_offset,queue_id,body",
        startingOffsets=start,
    )

    expected = sorted(
        (row["queue_offset"], row["queue_id"], bytes(row["body"]))
        for row in world.rows.values()
        if (row["topic"], row["broker_name"]) == ("orders", "broker-a")
        and (row["queue_id"] != 0 or row["queue_offset"] >= 3)
    )
    assert sorted((row[0], row[1], bytes(row[2])) for row in frame.collect()) == expected


def test_damage_is_told_by_its_file_and_its_place(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    store = shutil.copytree(world.stores["broker-a"], tmp_path / "store")
    first = min((store / "commitlog").iterdir())
    data = bytearray(first.read_bytes())
    at = data.index(b"broker-a/3:") + 50
    data[at] ^= 1
    first.write_bytes(data)

    with told(rf"DamagedError: {first}: .* log offset \d+ .* set damaged=mark"):
        load(spark, store).count()
    rows = load(spark, store, damaged="mark").collect()
    [marked] = [row for row in rows if row["damage"]]
    assert marked["log_offset"] < at < marked["log_offset"] + marked["size"]
    assert (marked["topic"], marked["body"]) == (None, None)


def test_it_is_a_table_only(spark: SparkSession, world: World) -> None:
    with told("for a stream, use format eruca"):
        spark.readStream.format("eruca-segments").options(topic="orders", broker="broker-a").load(
            str(world.stores["broker-a"])
        ).writeStream.format("noop").start().awaitTermination()
    with told("write to topics by eruca"):
        spark.range(1).write.format("eruca-segments").mode("append").save()


def test_a_topic_that_does_not_exist_is_told(spark: SparkSession, world: World) -> None:
    with told(r"ordres does not exist .* topics there: .*orders"):
        load(spark, world.stores["broker-a"], topic="ordres")


def test_a_place_without_a_log_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with told("has neither a store nor a backup of broker broker-a"):
        load(spark, tmp_path)


def test_a_schema_of_the_user_s_is_refused_also_in_sql(spark: SparkSession, tmp_path: Path) -> None:
    options = {"topic": "orders", "broker": "broker-a", "columns": "topic,body"}
    reader = spark.read.schema("topic string, body binary").format("eruca-segments")
    with told("without a schema of your own"):
        reader.options(**options).load(str(tmp_path)).count()

    texts = ", ".join(f"{name} '{value}'" for name, value in options.items())
    with told("without a schema of your own"):
        spark.sql(
            "CREATE TEMPORARY VIEW seen (topic string, body binary) USING `eruca-segments`"
            f" OPTIONS (path '{tmp_path}', {texts})"
        )
        spark.sql("SELECT * FROM seen").collect()
