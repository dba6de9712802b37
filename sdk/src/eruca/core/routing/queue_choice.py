"""Choose the queue of the next message: in turn, avoiding slow and failed brokers.

Without a fault table this is round robin, and a retry avoids the broker that just failed. With one
there are three passes, each over all queues in turn. The first pass accepts brokers that admit
messages. If all are isolated, the second accepts reachable brokers. The third accepts any. A retry
avoids the last broker in all passes but the third. So a producer always finds a queue.

Each examined queue takes one tick of the counter. When the counter wraps, once in 2³¹ ticks, a pass
may examine one queue twice and miss another, as in RocketMQ. Queues are values and never change.

Source: RocketMQ 5.3, ``MQFaultStrategy.selectOneMessageQueue``, ``TopicPublishInfo``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eruca.core.messages.message_queue import ChoiceReason, MessageQueue, QueueChoice
from eruca.core.routing.counter import Counter
from eruca.core.routing.latency_fault import FaultTable


def choose_queue(
    queues: Sequence[MessageQueue],
    counter: Counter,
    *,
    now_ms: float = 0,
    last_broker: str | None = None,
    faults: FaultTable | None = None,
) -> QueueChoice:
    """Return the queue to send to.

    Args:
        queues: The topic's writable queues in publish order; at least one.
        counter: The caller's own; it is advanced.
        now_ms: By the fault table's clock; unused without a table.
        last_broker: The broker of the failed attempt before; None for a first attempt.
        faults: The producer's fault table; None while latency fault tolerance is off. A choice with
            the reason PROBE is recorded in it.
    """
    assert queues, "the caller must refuse a topic without writable queues"
    if faults is None:
        return _choose_in_turn(queues, counter, last_broker)

    def admitted(queue: MessageQueue) -> bool:
        return queue.broker_name != last_broker and faults.admits(queue.broker_name, now_ms)

    def reachable(queue: MessageQueue) -> bool:
        return queue.broker_name != last_broker and faults.is_reachable(queue.broker_name, now_ms)

    if queue := _next_that(admitted, queues, counter):
        is_probe = faults.begin_probe(queue.broker_name, now_ms)
        return QueueChoice(queue, ChoiceReason.PROBE if is_probe else ChoiceReason.ROUND_ROBIN)
    if queue := _next_that(reachable, queues, counter):
        return QueueChoice(queue, ChoiceReason.ISOLATED)
    return QueueChoice(_next(queues, counter), ChoiceReason.LAST_RESORT)


def _choose_in_turn(
    queues: Sequence[MessageQueue], counter: Counter, last_broker: str | None
) -> QueueChoice:
    if last_broker is None:
        return QueueChoice(_next(queues, counter), ChoiceReason.ROUND_ROBIN)
    if queue := _next_that(lambda queue: queue.broker_name != last_broker, queues, counter):
        return QueueChoice(queue, ChoiceReason.ROUND_ROBIN)
    return QueueChoice(_next(queues, counter), ChoiceReason.LAST_RESORT)


def _next(queues: Sequence[MessageQueue], counter: Counter) -> MessageQueue:
    return queues[counter.advance() % len(queues)]


def _next_that(
    passes: Callable[[MessageQueue], bool], queues: Sequence[MessageQueue], counter: Counter
) -> MessageQueue | None:
    for _ in queues:
        queue = _next(queues, counter)
        if passes(queue):
            return queue
    return None
