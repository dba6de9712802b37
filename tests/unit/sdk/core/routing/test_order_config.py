"""The order config after a change: who keeps its keys, and when a version passes."""

from __future__ import annotations

from eruca.contract.fields import Permission
from eruca.contract.topics import OrderConfig, TopicConfig, TopicSettings
from eruca.core.routing.order_config import latest_order_config, order_config_of


def topic(queues: int = 4, *, ordered: bool = True, permission: Permission = "rw") -> TopicSettings:
    return TopicSettings(write_queue_count=queues, ordered=ordered, permission=permission)


def config(version: int, **queues: int) -> OrderConfig:
    return OrderConfig(version=version, queues=queues)


def held(order: OrderConfig | None) -> TopicConfig:
    return TopicConfig(
        topic="orders",
        read_queue_count=1,
        write_queue_count=1,
        permission="rw",
        ordered=True,
        order_config=order,
    )


def test_keys_are_divided_over_every_broker_where_the_topic_is_ordered() -> None:
    topics = {"a": topic(4), "b": topic(2), "c": topic(ordered=False)}

    assert order_config_of(topics, None, live="abc") == config(1, a=4, b=2)


def test_a_topic_that_is_ordered_nowhere_has_none() -> None:
    topics = {"a": topic(ordered=False)}

    assert order_config_of({}, None, live="a") is None
    assert order_config_of(topics, config(3, a=4), live="a") is None


def test_what_says_the_same_is_the_same_version() -> None:
    known = config(3, b=2, a=4)

    assert order_config_of({"a": topic(4), "b": topic(2)}, known, live="ab") is known


def test_a_broker_that_comes_or_has_other_queues_makes_the_next_version() -> None:
    known = config(3, a=4)

    assert order_config_of({"a": topic(8)}, known, live="a") == config(4, a=8)
    assert order_config_of({"a": topic(4), "b": topic(4)}, known, live="ab") == config(4, a=4, b=4)


def test_a_broker_that_is_away_keeps_its_keys_until_it_is_given_up() -> None:
    known = config(3, a=4, b=2)

    assert order_config_of({"a": topic(4)}, known, live="a") is known
    assert order_config_of({"a": topic(4)}, known, live="a", without="b") == config(4, a=4)


def test_one_that_is_there_without_the_topic_or_to_be_read_only_has_no_keys() -> None:
    known = config(3, a=4, b=2)

    assert order_config_of({"a": topic(4)}, known, live="ab") == config(4, a=4)
    only_read = {"a": topic(4), "b": topic(2, permission="r")}
    assert order_config_of(only_read, known, live="ab") == config(4, a=4)


def test_the_highest_version_counts() -> None:
    topics = {"a": held(config(2, a=1)), "b": held(None), "c": held(config(3, a=1, c=1))}

    assert latest_order_config(topics) == config(3, a=1, c=1)
    assert latest_order_config({"b": held(None)}) is None
