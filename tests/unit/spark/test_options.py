"""Options: what is missing, misspelt or impossible is refused at once."""

from __future__ import annotations

import pytest

from eruca.exporting.columns import COLUMNS
from eruca.exporting.errors import OptionError
from eruca.exporting.options import Options
from eruca.exporting.ranges import Queue
from pyspark_eruca.replay_options import ReplayOptions

LEAST = {"url": "http://query:10931", "topic": "orders"}
REPLAY = {**LEAST, "namesrv": "http://namesrv:9876", "replay": "again"}


def test_a_url_and_a_topic_are_enough() -> None:
    options = Options.parse(LEAST)

    assert options.urls == ("http://query:10931",)
    assert options.topics.names == ("orders",)
    assert options.columns == tuple(COLUMNS)
    assert options.starting == "earliest"
    assert options.ending == "latest"
    assert options.fail_on_data_loss


def test_names_are_read_whatever_their_case() -> None:
    assert Options.parse({**LEAST, "PARTITIONROWS": "7", "failondataloss": "FALSE"}) == (
        Options.parse({**LEAST, "partitionRows": "7", "failOnDataLoss": "false"})
    )


def test_a_path_is_a_topic() -> None:
    assert Options.parse({"url": "http://query", "path": "orders"}).topics.names == ("orders",)


def test_several_topics_and_services_may_be_named() -> None:
    options = Options.parse({"url": "http://a:1/; http://b:2", "topic": "orders, payments,orders"})

    assert options.urls == ("http://a:1", "http://b:2")
    assert options.topics.names == ("orders", "payments")


def test_the_service_may_be_named_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERUCA_QUERY_URLS", "http://query:10931")

    assert Options.parse({"topic": "orders"}).urls == ("http://query:10931",)


def test_offsets_are_told_by_queue() -> None:
    options = Options.parse({**LEAST, "startingOffsets": '{"orders/broker-a/3": 17}'})

    assert options.starting == {Queue("orders", "broker-a", 3): 17}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"topic": ""}, "topic is missing"),
        ({"topic": "orders,no/such topic"}, "expected a topic's name, found 'no/such topic'"),
        ({"url": ""}, "url is missing"),
        ({"url": "query:10931"}, "expected an http URL"),
        ({"colums": "tag"}, "unknown option 'colums'; valid options: url, topic"),
        ({"pushdown": "true"}, "pushdown was removed: .* limit the rows with startingOffsets"),
        ({"PushDown": "false"}, "remove the option"),
        ({"columns": "tag,colour"}, "colour"),
        ({"columns": "tag,tag"}, "columns"),
        ({"codec": "gzip"}, "one of none, lz4, zstd"),
        ({"partitionRows": "0"}, "a number from 1"),
        ({"partitionRows": "5000001"}, "a number from 1 to 5000000"),
        ({"maxRowsPerTrigger": "many"}, "a number from 1"),
        ({"failOnDataLoss": "perhaps"}, "true or false"),
        ({"retrySeconds": "-1"}, "a number of seconds"),
        ({"timeoutSeconds": "soon"}, "a number of seconds"),
        ({"startingOffsets": "first"}, "earliest or latest, or JSON"),
        ({"startingOffsets": '{"orders/broker-a/3": -1}'}, "found -1; earliest or latest applies"),
        ({"endingOffsets": '{"orders/broker-a/3": -2}'}, "found -2; latest applies to all queues"),
        ({"startingOffsets": '{"orders/broker-a/3": 9223372036854775808}'}, "expected 0 to 9"),
        ({"startingOffsets": '{"orders/broker-a/3": true}'}, "a whole number .* found True"),
        ({"startingOffsets": '{"orders/broker-a/3": 1.5}'}, "found 1.5"),
        ({"startingOffsets": '{"orders/broker-a/3": "17"}'}, "found '17'"),
        ({"startingOffsets": '{"orders/broker-a/3": 1, "orders/broker-a/03": 2}'}, "occurs twice"),
        ({"startingOffsets": '{"orders/broker-a/3": 1'}, "earliest or latest, or JSON"),
        ({"startingOffsets": "[17]"}, "earliest or latest, or JSON"),
        ({"startingOffsets": "17"}, "earliest or latest, or JSON"),
        ({"startingOffsets": "[]"}, "earliest or latest, or JSON"),
        ({"startingOffsets": "{}"}, "earliest or latest, or JSON"),
        ({"startingOffsets": "[{}]"}, "earliest or latest, or JSON"),
        ({"startingOffsets": "null"}, "earliest or latest, or JSON"),
        ({"startingOffsets": '[["orders/broker-a/3", 1]]'}, "earliest or latest, or JSON"),
        ({"endingOffsets": "[]"}, "latest, or JSON"),
        ({"endingOffsets": "{}"}, "latest, or JSON"),
        ({"startingOffsets": '{"orders/broker-a/' + "9" * 5_000 + '": 1}'}, "expected a queue as"),
        ({"startingOffsets": '{"orders/broker-a/٣": 1}'}, "expected a queue as"),
        (
            {"startingOffsets": '{"orders": {"0": 17}}'},
            "expected a queue as TOPIC/BROKER/QUEUE, found 'orders'",
        ),
        ({"startingOffsets": "[" * 100_000}, "earliest or latest, or JSON"),
        ({"startingTimestamp": "yesterday"}, "expected a time with its zone"),
        ({"startingTimestamp": "1795248000"}, "expected a time with its zone"),
        ({"endingTimestamp": "2026-11-21T08:00:00"}, "expected a time with its zone"),
        (
            {
                "startingTimestamp": "2026-11-21T08:00:00Z",
                "endingTimestamp": "2026-11-21T08:30:00+01:00",
            },
            "endingTimestamp: expected a time after startingTimestamp",
        ),
        (
            {"startingOffsets": '{"payments/broker-a/3": 1}'},
            "expected a queue of topics orders, found payments/broker-a/3",
        ),
        ({"endingOffsets": "earliest"}, "latest, or JSON"),
        (
            {"startingOffsets": "latest", "startingTimestamp": "2026-11-21T00:00:00Z"},
            "exclude each other",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    given: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ERUCA_QUERY_URLS", raising=False)

    with pytest.raises(OptionError, match=told):
        Options.parse({**LEAST, **given})


def test_a_replay_needs_a_name_and_where_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ERUCA_NAMESRV_URLS", raising=False)

    assert ReplayOptions.parse(REPLAY).replay == "again"
    for name in ("namesrv", "replay", "topic"):
        given = {key: value for key, value in REPLAY.items() if key != name}
        with pytest.raises(OptionError, match=name):
            ReplayOptions.parse(given)


def test_a_table_of_spark_s_catalogue_is_refused() -> None:
    """Spark 4.3 creates it with these properties, and reads it without any option."""
    given = {"owner": "me", "provider": "eruca", "option.topic": "orders", "topic": "orders"}
    with pytest.raises(OptionError, match="use CREATE TEMPORARY VIEW"):
        Options.parse(given)
