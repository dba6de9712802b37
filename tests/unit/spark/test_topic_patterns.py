"""Topics by a pattern: which ones match, and what happens to a stream as they come and go."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadMaxRows

from eruca.contract.limits import EXPORT_QUEUE_COUNT_MAX
from eruca.contract.names import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from eruca.exporting.errors import DataLossError, OptionError, SourceError, UnavailableError
from eruca.exporting.exports import Exports
from eruca.exporting.options import Options
from eruca.exporting.ranges import Queue
from eruca.exporting.stream_offsets import StreamOffset
from eruca.exporting.topic_choice import DERIVED_PREFIXES, TopicPattern
from pyspark_eruca.stream import StreamReader
from pyspark_eruca.table import pinned_ranges
from support.export_service import ExportService, serving_exports

URL = {"url": "http://query:10931"}
TOPICS = ("orders", "orders-eu", "orders_us", "payments", "%RETRY%orders", "%DLQ%orders")
LIMIT = ReadMaxRows(10_000)


@pytest.fixture
def service() -> Iterator[ExportService]:
    with serving_exports(ExportService().hold("orders-eu", {0: 50}).hold("orders-us", {0: 30})) as (
        served
    ):
        yield served


def options_of(service: ExportService, **options: str) -> Options:
    given = {"subscribePattern": "orders-.*", **options}
    return Options.parse({"url": service.url, "retrySeconds": "1", **given})


def ends(document: dict[str, Any]) -> dict[str, int]:
    return {queue.topic: at.offset for queue, at in StreamOffset.parse(document).next.items()}


def after(reader: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """Return the end of the next batch, as a checkpoint would give it back."""
    end: dict[str, Any] = json.loads(json.dumps(reader.latestOffset(start, LIMIT)))
    return end


def test_the_prefixes_of_derived_topics_are_the_contracts() -> None:
    assert set(DERIVED_PREFIXES) == {RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX}


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        (".*", ["orders", "orders-eu", "orders_us", "payments"]),
        ("orders", ["orders"]),
        ("order", []),
        ("orders-.*|pay.*", ["orders-eu", "payments"]),
        ("^orders$", ["orders"]),
        (r"orders[-_]\w{2}", ["orders-eu", "orders_us"]),
        ("(?i)ORDERS", ["orders"]),
        (r"orders-\p{Ll}+", ["orders-eu"]),
        (r"\Qorders\E.*", ["orders", "orders-eu", "orders_us"]),
        ("%DLQ%.*", ["%DLQ%orders"]),
        ("%RETRY%orders", ["%RETRY%orders"]),
        (".*orders", ["orders"]),
        ("(%DLQ%)?orders", ["orders"]),
        ("", []),
    ],
)
def test_the_whole_name_of_a_topic_must_match(pattern: str, matching: list[str]) -> None:
    assert list(TopicPattern(pattern).among(TOPICS)) == matching


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribePattern": "*"}, r"found '\*' \(no argument for repetition operator: \*\)"),
        ({"subscribePattern": "a)|(b"}, r"found 'a\)\|\(b'"),
        ({"subscribePattern": "(orders"}, "missing"),
        ({"subscribePattern": "orders\\"}, "expected a regular expression"),
        ({"subscribePattern": "\\Qorders"}, "expected a regular expression"),
        ({"subscribePattern": "(?!orders).*"}, "without look-arounds and backreferences"),
        ({"subscribePattern": r"(.)\1"}, "without look-arounds and backreferences"),
        ({"subscribePattern": "(a{1000}){1000}"}, "expected a regular expression"),
        ({"subscribePattern": "a", "topic": "a"}, "topic and subscribePattern exclude each other"),
        ({"subscribePattern": "a", "subscribe": "a"}, "subscribe and subscribePattern exclude"),
        ({"subscribePattern": "a", "path": "a"}, "exclude each other; keep one"),
        (
            {"subscribePattern": "a", "assign": '["orders/broker-a/0"]'},
            "assign and subscribePattern exclude each other",
        ),
        ({}, "option topic is missing: .* or subscribePattern, or assign"),
        ({"subscribePattern": " "}, "option topic is missing"),
        (
            {"subscribePattern": "a.*", "startingOffsets": '{"orders/broker-a/0": 1}'},
            "expected a queue of subscribePattern 'a.*', found orders/broker-a/0",
        ),
        (
            {
                "subscribePattern": "a.*",
                "ranges": '[{"topic": "b", "broker_name": "c", "queue_id": 0, "from_offset": 0,'
                ' "to_offset": 1}]',
            },
            "expected ranges of subscribePattern 'a.*', found topic b",
        ),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        Options.parse({**URL, **options})


@given(st.text(max_size=40), st.sampled_from(TOPICS))
def test_any_text_is_a_pattern_or_is_refused(text: str, topic: str) -> None:
    try:
        pattern = TopicPattern(text)
    except OptionError:
        return
    assert set(pattern.among([topic])) <= {topic}


def test_no_pattern_takes_long() -> None:
    began = time.monotonic()
    assert TopicPattern("(a|a)*(a|aa)+b").among(["a" * 127] * 1_000) == ()
    assert time.monotonic() - began < 10


def test_a_table_has_the_topics_that_match_at_its_load(service: ExportService) -> None:
    for topic in ("%DLQ%orders-eu", "a", "b", "c", "payments"):  # several pages of topics
        service.hold(topic, {0: 7})
    options = options_of(service)
    ranges = pinned_ranges(options, Exports(options))

    assert [(one.queue.topic, one.rows) for one in ranges] == [("orders-eu", 50), ("orders-us", 30)]


def test_a_pattern_without_a_topic_names_the_topics(service: ExportService) -> None:
    options = options_of(service, subscribePattern="order")
    told = "found 'order'; topics that may be read: orders-eu, orders-us"

    with pytest.raises(OptionError, match=told):
        pinned_ranges(options, Exports(options))
    service.hold("%DLQ%billing", {0: 1})
    dead = options_of(service, subscribePattern="%DLQ%orders")
    with pytest.raises(OptionError, match=r"topics that may be read: %DLQ%billing, orders-eu, ord"):
        pinned_ranges(dead, Exports(dead))
    reader = StreamReader(options)
    with pytest.raises(OptionError, match=told):
        reader.latestOffset(reader.initialOffset(), LIMIT)
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(OptionError, match=told):
        reader.latestOffset(reader.initialOffset(), LIMIT)


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_stream_reads_a_later_topic_from_its_beginning(
    service: ExportService, starting: str
) -> None:
    reader = StreamReader(options_of(service, startingOffsets=starting))
    first = after(reader, reader.initialOffset())
    service.hold("orders-asia", {0: 20}).hold("payments", {0: 5})
    second = after(reader, first)
    restarted = StreamReader(options_of(service, startingOffsets=starting))

    assert ends(first) == {"orders-eu": 50, "orders-us": 30}
    assert ends(second) == {"orders-asia": 20, "orders-eu": 50, "orders-us": 30}
    assert [(one.queue.topic, one.rows) for one in reader._planner.ranges(first, second)] == [
        ("orders-asia", 20)
    ]
    assert after(restarted, first) == second
    assert after(restarted, second) == second


def test_a_topic_that_is_deleted_ends_a_stream(service: ExportService) -> None:
    reader = StreamReader(options_of(service))
    first = after(reader, reader.initialOffset())
    service.delete("orders-us")

    for one in (reader, StreamReader(options_of(service))):
        with pytest.raises(
            DataLossError,
            match=r"topic orders-us no longer exists.*read up to orders-us/broker-a/0: 30\); to",
        ):
            one.latestOffset(first, LIMIT)


def test_a_topic_of_the_most_queues_is_known_to_be_deleted(service: ExportService) -> None:
    queues = [Queue("orders-us", f"broker-{n % 4}", n // 4) for n in range(EXPORT_QUEUE_COUNT_MAX)]
    service.delete("orders-us")

    assert Exports(options_of(service)).is_deleted(queues)


def test_a_stream_continues_without_a_deleted_topic_if_that_is_allowed(
    service: ExportService, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = StreamReader(options_of(service, failOnDataLoss="false"))
    first = after(reader, reader.initialOffset())
    service.delete("orders-us").hold("orders-eu", {0: 60})
    second = after(reader, first)
    third = after(reader, second)

    assert ends(second) == {"orders-eu": 60, "orders-us": 30}
    assert third == second
    assert capsys.readouterr().err.count("topic orders-us no longer exists") == 1

    service.create_again("orders-us", {0: 10})
    fourth = after(reader, third)
    [restart] = reader._planner.ranges(third, fourth)
    assert (restart.queue.topic, restart.start, restart.end) == ("orders-us", 0, 10)


def test_a_stream_waits_for_a_topic_whose_broker_is_away(service: ExportService) -> None:
    reader = StreamReader(options_of(service))
    first = after(reader, reader.initialOffset())
    away = service.queues
    service.queues = {queue: held for queue, held in away.items() if queue.topic == "orders-eu"}

    with pytest.raises(UnavailableError, match="topic orders-us: its brokers are away"):
        reader.latestOffset(first, LIMIT)
    assert ends(after(StreamReader(options_of(service, failOnDataLoss="false")), first)) == (
        ends(first)
    )
    service.queues = away
    assert after(reader, first) == first


def test_a_checkpoint_of_topics_that_do_not_match_is_refused(service: ExportService) -> None:
    reader = StreamReader(options_of(service))
    first = after(reader, reader.initialOffset())
    other = StreamReader(options_of(service, subscribePattern="orders-e.*"))

    with pytest.raises(
        SourceError,
        match=r"belongs to orders-us, which the stream of subscribePattern 'orders-e.\*' does not",
    ):
        other.latestOffset(first, LIMIT)
