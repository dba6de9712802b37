"""Conditions are not pushed down: why that is so, and that the answers are right all the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.types import StructType

from support.export_service import BEGAN, ExportService, serving_exports

SETTING = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(SETTING, "true")
    yield
    spark.conf.unset(SETTING)


class PushingSource(DataSource):
    """Ten rows, of which a pushed ``n = …`` keeps one."""

    @classmethod
    def name(cls) -> str:
        return "pushing"

    def schema(self) -> str:
        return "n INT"

    def reader(self, schema: StructType) -> DataSourceReader:
        return PushingReader()


class PushingReader(DataSourceReader):
    """Reads what is wanted, and has Spark apply every condition once more."""

    def __init__(self) -> None:
        self.wanted = list(range(10))

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        for one in filters:
            if isinstance(one, EqualTo):
                self.wanted = [one.value]
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(self.wanted)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter([(n,) for n in partition.value])


@pytest.mark.usefixtures("pushing")
def test_spark_still_applies_the_conditions_of_one_query_to_another(spark: SparkSession) -> None:
    """If this fails, Spark has mended it: the source can push conditions down from then on.

    Spark 4.3 keeps the reader that a query has pushed to with the load, not with the query.
    """
    import sys

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    spark.dataSource.register(PushingSource)
    cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
    rows = spark.read.format("pushing").load()

    assert rows.where("n = 3").count() == 1
    assert rows.count() == 1, "ten rows are right"


offsets = st.integers(-1, 41)
conditions = st.one_of(
    st.builds("queue_id {} {}".format, st.sampled_from(["=", "<", ">=", "<>"]), st.integers(0, 2)),
    st.builds("queue_offset {} {}".format, st.sampled_from(["=", "<", ">", "<=", ">="]), offsets),
    st.builds("queue_offset BETWEEN {} AND {}".format, offsets, offsets),
    st.builds("queue_offset IN ({}, {})".format, offsets, offsets),
    st.builds(
        "stored_at {} timestamp'{}'".format,
        st.sampled_from(["<", ">=", "="]),
        offsets.map(lambda n: (BEGAN + timedelta(milliseconds=n)).isoformat()),
    ),
    st.sampled_from(["tag = 'even'", "tag IS NULL", "NOT tag = 'even'", "topic LIKE 'ord%'"]),
    st.builds("array_contains(keys, 'key-{}')".format, st.integers(0, 9)),
)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.lists(conditions, min_size=1, max_size=3), min_size=2, max_size=3))
@pytest.mark.usefixtures("pushing")
def test_answers_are_those_of_the_same_rows_elsewhere(
    spark: SparkSession, queries: list[list[str]]
) -> None:
    """Several queries of one load, planned before the first runs, and of a copy in memory."""
    with serving_exports(ExportService().hold("orders", {0: 40, 1: 25})) as service:
        rows = spark.read.format("eruca").options(url=service.url, topic="orders").load()
        known = spark.createDataFrame(rows.collect(), rows.schema)
        texts = [" AND ".join(query) for query in queries]
        frames = [rows.where(text) for text in texts]
        for frame in frames:
            frame._jdf.queryExecution().executedPlan()

        for frame, text in zip(frames, texts, strict=True):
            assert sorted(map(str, frame.collect())) == sorted(
                map(str, known.where(text).collect())
            )
        assert rows.count() == 65
