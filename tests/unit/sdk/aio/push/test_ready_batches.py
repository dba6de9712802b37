"""Ready batches: taken once, by the first caller, and none of a queue that is not ours."""

from __future__ import annotations

import threading

from eruca.aio.pulling.broker_fetcher import Prefetch
from eruca.aio.push.held_queue import HeldQueue
from eruca.aio.push.ready_batches import Batch, ReadyBatches
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


def batch(queue: HeldQueue, *, is_async: bool = False) -> Batch:
    registration = Registration(print, Subscription("*"), is_async, takes_context=False)
    return Batch(queue, [], registration, None)


def ready(clock: Clock, overdue: list[HeldQueue] | None = None) -> ReadyBatches:
    lost = [] if overdue is None else overdue
    return ReadyBatches(clock, seconds=1.0, on_overdue=lost.append)


def test_batches_are_taken_in_order_and_counted() -> None:
    batches, queue = ready(Clock()), held()
    first, second = batch(queue), batch(queue)
    batches.put([first, second])

    assert batches.take() is first
    assert (queue.in_hand, len(batches)) == (1, 1)
    assert batches.take() is second
    assert batches.take() is None


def test_a_thread_takes_no_batch_for_the_event_loop() -> None:
    batches, queue = ready(Clock()), held()
    batches.put([batch(queue, is_async=True), batch(queue)])

    assert batches.take(in_thread=True) is None
    assert batches.take() is not None
    assert batches.take(in_thread=True) is not None


def test_a_queue_whose_session_is_over_is_told_of_and_nothing_of_it_begins() -> None:
    clock, overdue = Clock(), list[HeldQueue]()
    batches, queue, other = ready(clock, overdue), held(0), held(1)
    batches.put([batch(queue), batch(other), batch(queue)])
    clock.now = 111.0
    assert other.session is not None
    other.session.renew(110.0, 10.0)

    taken = batches.take()

    assert taken is not None
    assert taken.held is other
    assert batches.take() is None
    assert overdue == [queue]
    assert queue.is_dropped


def test_what_is_withdrawn_is_not_taken() -> None:
    batches, queue, other = ready(Clock()), held(0), held(1)
    batches.put([batch(queue), batch(other), batch(queue)])

    assert len(batches.withdraw(queue)) == 2

    taken = batches.take()
    assert taken is not None
    assert taken.held is other


def test_a_result_that_comes_after_the_time_limit_does_not_count() -> None:
    clock = Clock()
    batches, queue = ready(clock), held()
    batches.put([batch(queue), batch(queue)])
    late, in_time = batches.take(), batches.take()
    assert late is not None
    assert in_time is not None
    assert batches.settle(in_time)

    clock.now += 1.0

    assert batches.expire() == [late]
    assert batches.expire() == []
    assert not batches.settle(late)


def test_each_batch_is_taken_by_one_of_many_threads() -> None:
    batches, queue = ready(Clock()), held()
    everything = [batch(queue) for _ in range(2_000)]
    batches.put(everything)
    taken: list[Batch] = []

    def take_all() -> None:
        while (one := batches.take(in_thread=True)) is not None:
            taken.append(one)

    threads = [threading.Thread(target=take_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(taken) == len(set(taken)) == 2_000
    assert queue.in_hand == 2_000
