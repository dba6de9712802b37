"""Message queues: values that sort alike at every client."""

from __future__ import annotations

import pytest

from eruca.contract.errors import ValidationError
from eruca.core.messages.message_queue import MessageQueue, checked_queue


def test_queues_sort_by_topic_then_broker_then_number() -> None:
    a10, a2, b0 = (MessageQueue("a", *rest) for rest in (("x", 10), ("x", 2), ("y", 0)))
    other = MessageQueue("b", "a", 0)

    assert sorted([other, b0, a10, a2]) == [a2, a10, b0, other]


def test_equal_queues_are_one_key() -> None:
    assert len({MessageQueue("a", "b", 1), MessageQueue("a", "b", 1)}) == 1


@pytest.mark.parametrize("given", [3, "orders", ("orders", "a", 0), None])
def test_what_is_no_queue_is_refused_and_told_what_would_be_one(given: object) -> None:
    with pytest.raises(ValidationError, match=r"queue: expected a MessageQueue, found") as refused:
        checked_queue(given)  # type: ignore[arg-type]
    assert "eruca.MessageQueue(" in (refused.value.fix or "")
