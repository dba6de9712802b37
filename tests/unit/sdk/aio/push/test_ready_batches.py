"""Ready batches: taken once, by the first caller, and none of a queue that is not ours."""

from __future__ import annotations

import threading

from eruca.aio.pulling.broker_fetcher import Prefetch
from eruca.aio.push.held_queue import HeldQueue
from eruca.aio.push.ready_batches import Batch, ReadyBatches, Run
from eruca.core.consuming.flow_control import FlowLimits
from eruca.core.consuming.handler_table import Registration
from eruca.core.consuming.session import Session
from eruca.core.filters.tag_expression import Subscription
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage


class Clock:
    """Says what it is told to say."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Nobody:
    """An intake for queues that nothing is pulled of."""

    def put(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None: ...

    def restart(self, held: HeldQueue) -> None: ...

    def progressed(self, held: HeldQueue) -> None: ...

    def skipped(self, held: HeldQueue, message: ReceivedMessage) -> bool:
        raise AssertionError(message)


def held(number: int = 0) -> HeldQueue:
    session = Session(10.0)
    session.renew(100.0, 10.0)
    return HeldQueue(
        MessageQueue("orders", "a", number),
        model="clustering",
        limits=FlowLimits(1_000, 10**8, 2_000),
        prefetch=Prefetch(1_000, 10**6),
        intake=Nobody(),
        offset=0,
        token=1,
        session=session,
    )


def run(queue: HeldQueue, count: int = 1, *, is_async: bool = False, count_max: int = 1) -> Run:
    registration = Registration(print, Subscription("*"), is_async, takes_context=False)
    messages = [ReceivedMessage(queue.queue, offset, b"", 0, 0) for offset in range(count)]
    return Run(queue, messages, registration, count_max)


def ready(clock: Clock, overdue: list[HeldQueue] | None = None) -> ReadyBatches:
    lost = [] if overdue is None else overdue
    return ReadyBatches(clock, seconds=1.0, on_overdue=lost.append)


def begun(batches: ReadyBatches) -> Batch:
    batch = batches.begin_next()
    assert isinstance(batch, Batch)
    return batch


def offsets(batch: Batch) -> list[int]:
    return [message.queue_offset for message in batch.messages]


def test_batches_are_taken_in_order_and_counted() -> None:
    batches, queue = ready(Clock()), held()
    batches.put([run(queue, 3, count_max=2), run(queue)])
    assert len(batches) == 3

    assert offsets(begun(batches)) == [0, 1]
    assert (queue.in_hand, len(batches)) == (1, 2)
    assert offsets(begun(batches)) == [2]
    assert offsets(begun(batches)) == [0]
    assert batches.begin_next() is None
    assert queue.in_hand == 3


def test_a_thread_takes_no_batch_for_the_event_loop() -> None:
    batches, queue = ready(Clock()), held()
    batches.put([run(queue, 2, is_async=True, count_max=2), run(queue)])

    assert batches.take_in_thread() is None
    assert begun(batches).is_async
    assert batches.take_in_thread() is not None


def test_stints_of_a_run_share_its_messages_and_a_thread_takes_none() -> None:
    batches, queue = ready(Clock()), held()
    one = run(queue, 3, is_async=True)
    batches.put([one, run(queue)])

    assert batches.begin_next() is one
    assert one.left.popleft().queue_offset == 0
    assert batches.take_in_thread() is None
    assert batches.begin_next() is one
    assert [message.queue_offset for message in one.left] == [1, 2]
    assert queue.in_hand == 2

    one.left.clear()
    assert batches.take_in_thread() is not None


def test_a_queue_whose_session_is_over_is_told_of_and_nothing_of_it_begins() -> None:
    clock, overdue = Clock(), list[HeldQueue]()
    batches, queue, other = ready(clock, overdue), held(0), held(1)
    batches.put([run(queue), run(other), run(queue)])
    clock.now = 111.0
    assert other.session is not None
    other.session.renew(110.0, 10.0)

    assert begun(batches).held is other
    assert batches.begin_next() is None
    assert overdue == [queue]
    assert queue.is_dropped


def test_what_is_withdrawn_is_not_taken() -> None:
    batches, queue, other = ready(Clock()), held(0), held(1)
    batches.put([run(queue), run(other), run(queue)])

    assert len(batches.withdraw(queue)) == 2

    assert begun(batches).held is other
    assert batches.begin_next() is None


def test_a_stint_takes_nothing_that_was_withdrawn_meanwhile() -> None:
    batches, queue = ready(Clock()), held()
    one = run(queue, 3, is_async=True)
    batches.put([one])
    assert batches.begin_next() is one
    one.left.popleft()

    (rest,) = batches.withdraw(queue)

    assert not one.left
    assert [message.queue_offset for message in rest.left] == [1, 2]


def test_nothing_is_taken_after_the_end() -> None:
    batches, queue = ready(Clock()), held()
    one = run(queue, 3, is_async=True)
    batches.put([one, run(queue)])
    batches.begin_next()

    batches.close()

    assert not one.left
    assert batches.begin_next() is None


def test_a_result_that_comes_after_the_time_limit_does_not_count() -> None:
    clock = Clock()
    batches, queue = ready(clock), held()
    batches.put([run(queue, 2)])
    late, in_time = begun(batches), begun(batches)
    assert batches.settle(in_time)

    clock.now += 1.0

    assert batches.expire() == [late]
    assert batches.expire() == []
    assert not batches.settle(late)


def test_each_batch_is_taken_by_one_of_many_threads() -> None:
    batches, queue = ready(Clock()), held()
    batches.put([run(queue, 500) for _ in range(4)])
    taken: list[Batch] = []

    def take_all() -> None:
        while (one := batches.take_in_thread()) is not None:
            taken.append(one)

    threads = [threading.Thread(target=take_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(taken) == len(set(taken)) == 2_000
    assert sorted(map(offsets, taken)) == sorted([[number] for number in range(500)] * 4)
    assert queue.in_hand == 2_000
