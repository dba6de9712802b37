"""A push consumer's settings and handlers, and the choice of a message's handler."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from eruca.contract.errors import ValidationError
from eruca.contract.records import Record, encode_record
from eruca.core.consuming.consume_context import ConsumeContext
from eruca.core.consuming.handler_table import HandlerTable
from eruca.core.consuming.push_options import Membership, Offsets, Retries
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage
from support.push import push_settings


@pytest.mark.parametrize(
    ("wrong", "about"),
    [
        ({"group": ""}, "group"),
        ({"group": "CID_RMQ_SYS_x"}, "group"),
        ({"message_model": "CLUSTERING"}, "message_model: .* neither clustering nor broadcasting"),
        ({"start": "yesterday"}, "start"),
        ({"start": datetime(2026, 1, 1)}, "start"),  # noqa: DTZ001  (that is what is wrong)
        ({"concurrency": 0}, "concurrency"),
        ({"batch_count_max": 1_025}, "batch_count_max"),
        ({"consume_timeout_seconds": 0}, "consume_timeout_seconds"),
        ({"stop_timeout_seconds": -1}, "stop_timeout_seconds"),
        ({"client_id": ""}, "client_id"),
        ({"retries": Retries(on_poison="block_key")}, "retries.on_poison: .*ordered=True"),
        ({"offsets": Offsets(auto_commit=False)}, "offsets.auto_commit: .*ordered=True"),
        (
            {
                "ordered": True,
                "retries": Retries(on_poison="block_key"),
                "offsets": Offsets(auto_commit=False),
            },
            'retries.on_poison: "block_key" needs offsets.auto_commit',
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any], about: str) -> None:
    with pytest.raises(ValidationError, match=about):
        push_settings(**wrong)


def test_the_defaults_and_the_bounds_are_allowed() -> None:
    assert push_settings().is_clustering
    push_settings(
        start=datetime(2026, 1, 1, tzinfo=UTC),
        ordered=True,
        retries=Retries(retries_max=0, on_poison="block_key"),
        membership=Membership(session_seconds=3.0),
        offsets=Offsets(commit_seconds=0.0),
    )


def handler(message: object) -> None:
    """Do nothing."""


def other_handler(message: object) -> None:
    """Do nothing either."""


def added(*registrations: tuple[Any, ...]) -> HandlerTable:
    table = HandlerTable()
    for function, topic, expression, *filter_type in registrations:
        table.add(
            topic,
            function,
            expression=expression,
            filter_type=filter_type[0] if filter_type else "tag",
            is_async=False,
            takes_context=False,
        )
    return table


def message(
    topic: str, tag: str | None = None, *, retried_from: str | None = None
) -> ReceivedMessage:
    properties = {"TAGS": tag, "RETRY_TOPIC": retried_from}
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items() if value)
    record = encode_record(Record(topic, b"", properties=text))
    return ReceivedMessage(MessageQueue(topic, "broker-a", 0), 0, record, 0, len(record))


def test_handlers_of_one_topic_add_up_to_one_subscription() -> None:
    by_tag = added((handler, "t", "b || a"), (other_handler, "t", "c"))
    everything = added((handler, "t", "a"), (other_handler, "t", "*"))

    assert by_tag.subscription("t").expression == "a || b || c"
    assert everything.subscription("t").expression == "*"


def test_a_message_goes_to_the_first_handler_that_wants_its_tag() -> None:
    table = added((handler, "t", "a"), (other_handler, "t", "*"))

    found = [table.find(message("t", tag)) for tag in ("a", "b", None)]

    assert [f.function for f in found if f] == [handler, other_handler, other_handler]


def test_a_retry_goes_to_the_handler_of_its_origin() -> None:
    table = added((handler, "t", "a"), (other_handler, "u", "*"))

    found = table.find(message("%RETRY%g", "a", retried_from="t"))

    assert found is not None
    assert found.function is handler


def test_a_retry_that_no_handler_wants_any_more_goes_to_the_first() -> None:
    table = added((handler, "t", "a"), (other_handler, "t", "b"))

    found = table.find(message("%RETRY%g", "c", retried_from="t"))

    assert found is not None
    assert found.function is handler
    assert table.find(message("elsewhere")) is None


@pytest.mark.parametrize(
    ("topic", "expression", "filter_type"),
    [("no topic", "*", "tag"), ("t", "||", "tag"), ("t", "", "sql92"), ("t", "*", "regex")],
)
def test_subscriptions_that_mean_nothing_are_refused(
    topic: str, expression: str, filter_type: str
) -> None:
    with pytest.raises(ValidationError):
        added((handler, topic, expression, filter_type))


def test_a_topic_filtered_by_conditions_has_one_handler() -> None:
    with pytest.raises(ValidationError, match="only tags"):
        added((handler, "t", "a > 1", "sql92"), (other_handler, "t", "*"))


def test_a_context_knows_whether_its_queue_is_lost() -> None:
    lost = False
    context = ConsumeContext(MessageQueue("t", "b", 0), lambda: lost)
    assert not context.is_lost

    lost = True

    assert context.is_lost
