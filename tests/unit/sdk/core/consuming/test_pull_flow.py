"""A queue's flow: what is handed out is in order and whole, whatever is sought or given back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import ClientError
from eruca.core.consuming.pull_flow import QueueFlow
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage

QUEUE = MessageQueue("orders", "broker-a", 0)


def messages(start: int, end: int) -> list[ReceivedMessage]:
    return [ReceivedMessage(QUEUE, offset, b"", 0, 100) for offset in range(start, end)]


def offsets(taken: list[ReceivedMessage]) -> list[int]:
    return [message.queue_offset for message in taken]


@pytest.fixture
def flow() -> QueueFlow:
    return QueueFlow(QUEUE, "earliest", use_committed=False, offset=0)


def test_a_flow_knows_no_position_until_its_start_is_found_out() -> None:
    assert QueueFlow(QUEUE, "latest", use_committed=True).position is None


@given(
    chunks=st.lists(st.integers(1, 20), max_size=8), takes=st.lists(st.integers(1, 30), max_size=20)
)
def test_messages_come_out_in_order_and_each_once(chunks: list[int], takes: list[int]) -> None:
    flow = QueueFlow(QUEUE, "earliest", use_committed=False, offset=0)
    end = 0
    for count in chunks:
        flow.put(messages(end, end + count), end + count, flow.epoch)
        end += count
    handed_out: list[int] = []
    for count in takes:
        taken = flow.take(count)
        assert len(taken) <= count
        handed_out += offsets(taken)
        assert flow.position == len(handed_out)
        assert (flow.count, flow.size) == (end - len(handed_out), 100 * (end - len(handed_out)))

    assert handed_out == list(range(min(sum(takes), end)))


def test_what_is_given_back_comes_first_again(flow: QueueFlow) -> None:
    flow.put(messages(0, 5), 5, flow.epoch)
    taken = flow.take(3)

    flow.give_back(taken[1:])

    assert (flow.position, flow.count, flow.size) == (1, 4, 400)
    assert offsets(flow.take(10)) == [1, 2, 3, 4]


def test_giving_nothing_back_changes_nothing(flow: QueueFlow) -> None:
    flow.give_back([])

    assert flow.position == 0


def test_an_answer_from_before_a_seek_is_dropped(flow: QueueFlow) -> None:
    epoch = flow.epoch
    flow.seek(50)

    assert flow.put(messages(0, 5), 5, epoch) == 0
    assert (flow.position, flow.take(10)) == (50, [])


def test_a_seek_drops_what_is_held_ready_and_clears_a_fault(flow: QueueFlow) -> None:
    flow.put(messages(0, 5), 5, flow.epoch)
    flow.fault = ClientError("x")

    flow.seek(3)

    assert (flow.position, flow.count, flow.size) == (3, 0, 0)
    assert flow.has_room(10)


def test_seeking_to_a_place_leaves_its_offset_to_be_found_out(flow: QueueFlow) -> None:
    flow.seek_to("latest")

    assert (flow.position, flow.start, flow.use_committed) == (None, "latest", False)


def test_an_empty_answer_moves_the_position_all_the_same(flow: QueueFlow) -> None:
    """A filter that passed nothing has still read on."""
    flow.put([], 40, flow.epoch)

    assert flow.position == 40


def test_a_paused_flow_holds_nothing_and_keeps_its_position(flow: QueueFlow) -> None:
    epoch = flow.epoch
    flow.put(messages(0, 5), 5, epoch)
    flow.take(2)
    flow.pause()

    assert (flow.position, flow.count, flow.size, flow.take(10)) == (2, 0, 0, [])
    assert flow.put(messages(5, 9), 9, epoch) == 0  # it had been asked for before
    assert not flow.has_room(10)

    flow.resume()

    assert flow.has_room(10)
    flow.put(messages(2, 5), 5, flow.epoch)
    assert offsets(flow.take(10)) == [2, 3, 4]


def test_where_a_paused_flow_begins_is_found_out_all_the_same(flow: QueueFlow) -> None:
    flow.pause()
    flow.seek_to("latest")

    assert flow.has_room(10)


@pytest.mark.parametrize(("count", "has_room"), [(0, True), (5, True), (6, False), (10, False)])
def test_a_flow_is_pulled_again_when_half_of_it_is_used_up(
    flow: QueueFlow, count: int, *, has_room: bool
) -> None:
    flow.put(messages(0, count), count, flow.epoch)

    assert flow.has_room(10) == has_room


def test_a_flow_is_not_pulled_while_it_is_being_pulled(flow: QueueFlow) -> None:
    flow.is_pulling = True

    assert not flow.has_room(10)


def test_a_flow_with_a_fault_is_not_pulled(flow: QueueFlow) -> None:
    flow.fault = ClientError("x")

    assert not flow.has_room(10)
