"""Message queues: values that sort alike at every client."""

from __future__ import annotations

from eruca.core.message_queue import MessageQueue


def test_queues_sort_by_topic_then_broker_then_number() -> None:
    a10, a2, b0 = (MessageQueue("a", *rest) for rest in (("x", 10), ("x", 2), ("y", 0)))
    other = MessageQueue("b", "a", 0)

    assert sorted([other, b0, a10, a2]) == [a2, a10, b0, other]


def test_equal_queues_are_one_key() -> None:
    assert len({MessageQueue("a", "b", 1), MessageQueue("a", "b", 1)}) == 1
