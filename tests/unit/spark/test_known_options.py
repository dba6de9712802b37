"""The options that users of Spark's Kafka source know: what they mean here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadMaxRows

from eruca.exporting.errors import OptionError, SourceError
from eruca.exporting.exports import Exports
from eruca.exporting.options import Options
from eruca.exporting.ranges import Queue, Range, pack
from eruca.exporting.stream_offsets import StreamOffset
from pyspark_eruca.stream import StreamReader
from pyspark_eruca.table import pinned_ranges
from support.export_service import ExportService, serving_exports

URL = {"url": "http://query:10931"}
FIRST, SECOND = Queue("orders", "broker-a", 0), Queue("orders", "broker-a", 1)


@pytest.fixture
def service() -> Iterator[ExportService]:
    with serving_exports(ExportService().hold("orders", {0: 500, 1: 250})) as served:
        yield served


def options_of(service: ExportService, **options: str) -> Options:
    given = {} if "assign" in options else {"subscribe": "orders"}
    return Options.parse({"url": service.url, "retrySeconds": "5", **given, **options})


def test_names_of_kafkas_source_are_names_of_ours() -> None:
    known = Options.parse(
        {
            **URL,
            "subscribe": "orders",
            "maxOffsetsPerTrigger": "7",
            "startingTimestamp": "1795816000500",
        }
    )
    ours = Options.parse(
        {
            **URL,
            "topic": "orders",
            "maxRowsPerTrigger": "7",
            "startingTimestamp": "2026-11-27T21:46:40.500Z",
        }
    )
    assert known == ours


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topic": "a", "subscribe": "a"}, "mean the same"),
        ({"topic": "orders", "assign": '["orders/broker-a/0"]'}, "exclude each other"),
        ({"assign": '{"orders": [0]}'}, "expected a JSON array of queues"),
        ({"assign": '["orders/0"]'}, "TOPIC/BROKER/QUEUE"),
        ({"topic": "a", "maxTriggerDelay": "soon"}, "expected a duration such as 90s"),
        (
            {"topic": "a", "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
            "expected at most 5",
        ),
        ({"topic": "a", "kafka.bootstrap.servers": "b:9092"}, "belongs to Spark's Kafka source"),
        ({"topic": "a", "includeHeaders": "true"}, "the column properties always has them"),
        ({"topic": "a", "progressGroup": "billing"}, "a group's name that begins with spark-"),
        ({"topic": "a", "progressGroup": "spark-a", "namesrv": "n"}, "expected an http URL"),
        ({"topic": "a", "ranges": "[]", "endingOffsets": "latest"}, "option ranges excludes"),
        ({"topic": "a", "ranges": '[{"topic": "a"}]'}, "expected a JSON array of ranges"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        Options.parse({**URL, **options})


def test_assigned_queues_are_the_only_ones(service: ExportService) -> None:
    options = options_of(service, assign='["orders/broker-a/1"]')
    assert set(Exports(options).held(options.topics.names)) == {SECOND}

    missing = options_of(service, assign='["orders/broker-a/7"]')
    with pytest.raises(SourceError, match="unknown queue orders/broker-a/7"):
        Exports(missing).held(missing.topics.names)


def test_exact_ranges_are_read_back_from_a_manifests_text() -> None:
    wanted = (Range(FIRST, 3, 9, "9f2c-1"), Range(SECOND, 0, 1))
    text = json.dumps([one.to_json() for one in wanted])
    assert Options.parse({**URL, "topic": "orders", "ranges": text}).ranges == wanted


def test_a_time_without_later_messages_is_an_error_if_that_is_wanted(
    service: ExportService,
) -> None:
    late = {"startingTimestamp": "2026-11-21T00:00:00.300Z"}
    options = options_of(service, **late)
    assert [one.queue for one in pinned_ranges(options, Exports(options))] == [FIRST]

    options = options_of(service, **late, startingOffsetsByTimestampStrategy="error")
    with pytest.raises(OptionError, match="expected a message of orders/broker-a/1"):
        pinned_ranges(options, Exports(options))


sizes = st.lists(st.integers(0, 60), max_size=6)


@given(sizes, st.integers(1, 50), st.integers(1, 40))
def test_there_are_as_many_tasks_as_wanted_and_each_message_is_in_one(
    sizes: list[int], partition_rows: int, count_min: int
) -> None:
    ranges = [Range(Queue("t", "b", number), 0, size) for number, size in enumerate(sizes)]
    shares = pack(ranges, partition_rows, count_min=count_min)

    assert len(shares) >= min(count_min, sum(sizes))
    assert all(sum(one.rows for one in share) <= partition_rows for share in shares)
    read = [(one.queue, offset) for share in shares for one in share for offset in span(one)]
    assert sorted(read) == [(one.queue, offset) for one in ranges for offset in span(one)]


def span(one: Range) -> range:
    return range(one.start, one.end)


def test_a_stream_waits_for_enough_messages_but_not_for_ever(service: ExportService) -> None:
    now = 0.0
    options = options_of(service, minOffsetsPerTrigger="100", maxTriggerDelay="60s")
    reader = StreamReader(options, clock=lambda: now)

    def next_after(start: dict[str, Any]) -> dict[str, Any]:
        return reader.latestOffset(start, ReadMaxRows(10_000))

    first = next_after(reader.initialOffset())
    service.hold("orders", {0: 510})
    assert next_after(first) == first
    latest = reader.reportLatestOffset()
    assert latest is not None
    assert StreamOffset.parse(latest).next[FIRST].offset == 510

    now = 60.0
    second = next_after(first)
    assert StreamOffset.parse(second).next[FIRST].offset == 510
    service.hold("orders", {0: 615})
    assert StreamOffset.parse(next_after(second)).next[FIRST].offset == 615


def test_a_run_that_ends_does_not_wait(service: ExportService) -> None:
    reader = StreamReader(options_of(service, minOffsetsPerTrigger="100"), clock=lambda: 0.0)
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10_000))
    service.hold("orders", {0: 501})
    reader.prepareForTriggerAvailableNow()
    last = reader.latestOffset(first, ReadMaxRows(10_000))
    assert StreamOffset.parse(last).next[FIRST].offset == 501
