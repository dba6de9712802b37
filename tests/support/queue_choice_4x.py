"""The queue the next message goes to, exactly as RocketMQ 4.x chose it: for comparison.

Kept because the release is widely described, and because the difference is worth seeing: with the
fault table on, a retry takes an available queue only if it is on the broker that *just failed*;
otherwise it falls back to the better half of the brokers known to the table, isolated ones
included. :mod:`eruca.core.routing.queue_choice` does what was meant. Two of its defects are left
out since they cannot be seen from outside or help nobody: it changed the shared queue object in
place, and its counter could become negative.

Source: RocketMQ 4.7, ``MQFaultStrategy.selectOneMessageQueue``, ``TopicPublishInfo``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from eruca.core.messages.message_queue import ChoiceReason, MessageQueue, QueueChoice
from eruca.core.routing.counter import Counter
from eruca.core.routing.latency_fault import FaultTable
from support.rocketmq_rules import pick_of_better_half

_INT_MAX: Final = 0x7FFF_FFFF


def choose_queue_4x(
    queues: Sequence[MessageQueue],
    counter: Counter,
    *,
    better_half_counter: Counter,
    now_ms: float = 0,
    last_broker: str | None = None,
    faults: FaultTable | None = None,
) -> QueueChoice:
    """Return the queue to send to; arguments as of :func:`.queue_choice.choose_queue`.

    Args:
        queues: The topic's writable queues in publish order; at least one.
        counter: The caller's own; advanced.
        better_half_counter: A second one, for the fall-back.
        now_ms: By the fault table's clock.
        last_broker: Where the attempt before this one failed; None for a first attempt.
        faults: The producer's fault table. A broker in it that has no queue here is removed when
            the fall-back meets it.
    """
    assert queues, "a topic without a queue to write to is for the caller to refuse"
    if faults is None:
        return _choose_in_turn(queues, counter, last_broker)

    def stays(queue: MessageQueue) -> bool:
        is_available = faults.is_available(queue.broker_name, now_ms)
        return is_available and last_broker in (None, queue.broker_name)

    if queue := _scan(stays, queues, counter):
        return QueueChoice(queue, ChoiceReason.ROUND_ROBIN)
    broker_name = pick_of_better_half(faults, now_ms, better_half_counter)
    if broker_name is not None:
        if count := sum(queue.broker_name == broker_name for queue in queues):
            topic = _next(queues, counter).topic  # it takes a tick before the one that counts
            queue = MessageQueue(topic, broker_name, counter.advance() % count)
            return QueueChoice(queue, ChoiceReason.LEAST_BAD)
        faults.remove(broker_name)
    return QueueChoice(_next(queues, counter), ChoiceReason.LAST_RESORT)


def _choose_in_turn(
    queues: Sequence[MessageQueue], counter: Counter, last_broker: str | None
) -> QueueChoice:
    if last_broker is None:
        return QueueChoice(_next(queues, counter), ChoiceReason.ROUND_ROBIN)
    if queue := _scan(lambda queue: queue.broker_name != last_broker, queues, counter):
        return QueueChoice(queue, ChoiceReason.ROUND_ROBIN)
    return QueueChoice(_next(queues, counter), ChoiceReason.LAST_RESORT)


def _next(queues: Sequence[MessageQueue], counter: Counter) -> MessageQueue:
    return queues[counter.advance() % len(queues)]


def _scan(
    passes: Callable[[MessageQueue], bool], queues: Sequence[MessageQueue], counter: Counter
) -> MessageQueue | None:
    # One tick for the whole scan, which then counts on by itself, with Java's 32-bit overflow.
    start = counter.advance()
    for index in range(start, start + len(queues)):
        queue = queues[_magnitude(index) % len(queues)]
        if passes(queue):
            return queue
    return None


def _magnitude(index: int) -> int:
    """Return what ``Math.abs`` makes of an int that has counted on past its maximum."""
    if index <= _INT_MAX:
        return index
    beyond = index - _INT_MAX - 1
    # The smallest int has no magnitude: abs leaves it negative, and the code then takes queue 0.
    return _INT_MAX + 1 - beyond if beyond else 0
