"""Queue selectors: equal arguments share a queue, and a selector returns one of the queues."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import ValidationError
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.routing.selectors import (
    argument_hash,
    by_hash,
    by_machine_room,
    by_random,
    machine_room,
    select_queue,
)

QUEUES = [MessageQueue("orders", "broker-a", n) for n in range(4)]
ROOMS = [MessageQueue("orders", f"{room}@broker-{room}", n) for room in "ab" for n in range(2)]
ARGUMENTS = st.one_of(st.none(), st.booleans(), st.text(), st.integers(-(2**63), 2**63 - 1))


@given(ARGUMENTS, st.integers(1, 50))
def test_equal_arguments_share_a_queue(argument: str | int | bool | None, count: int) -> None:
    queues = [MessageQueue("orders", "broker-a", n) for n in range(count)]

    assert select_queue(by_hash, queues, argument) == select_queue(by_hash, queues, argument)


@pytest.mark.parametrize(("argument", "index"), [("XXX001", 3), ("XXX002", 2), ("XXX003", 1)])
def test_the_hash_is_javas(argument: str, index: int) -> None:
    assert by_hash(QUEUES, argument).queue_id == index


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        (None, 0),
        (True, 1231),
        (False, 1237),
        (-7, -7),
        (2**31 - 1, 2**31 - 1),
        (2**31, -(2**31)),
        (-(2**31), -(2**31)),
        (-(2**31) - 1, -(2**31)),
        (5_000_000_000, 705_032_705),
    ],
)
def test_arguments_hash_as_their_java_types(argument: int | None, expected: int) -> None:
    assert argument_hash(argument) == expected


@pytest.mark.parametrize("argument", [2**63, -(2**63) - 1, 1.5, b"key", ("a", 1)])
def test_other_arguments_are_refused(argument: object) -> None:
    with pytest.raises(ValidationError, match="selector argument"):
        by_hash(QUEUES, cast("Any", argument))


def test_random_reaches_every_queue() -> None:
    select = by_random(random.Random(5))

    assert {select(QUEUES, None) for _ in range(100)} == set(QUEUES)


@given(ARGUMENTS)
def test_a_machine_room_keeps_messages_in_its_rooms(argument: str | int | bool | None) -> None:
    queue = select_queue(by_machine_room({"b"}), ROOMS, argument)

    assert machine_room(queue.broker_name) == "b"


def test_without_a_broker_in_the_rooms_all_queues_are_taken() -> None:
    select = by_machine_room({"elsewhere"}, by_random(random.Random(5)))

    assert {select(ROOMS, None) for _ in range(100)} == set(ROOMS)


def test_a_broker_name_without_a_room_is_in_none() -> None:
    assert machine_room("broker-a") is None
    assert machine_room("room-1@broker-a") == "room-1"


@pytest.mark.parametrize("returned", [None, MessageQueue("orders", "broker-z", 0)])
def test_a_selector_must_return_one_of_the_queues(returned: MessageQueue | None) -> None:
    with pytest.raises(ValidationError, match="expected one of the topic's queues"):
        select_queue(lambda _queues, _argument: cast("MessageQueue", returned), QUEUES, "key")
