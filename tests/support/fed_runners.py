"""Runners of push consumers that are fed by a test: held queues, and no broker."""

from __future__ import annotations

from typing import Final, Protocol

from eruca.aio.pulling.broker_fetcher import Prefetch
from eruca.aio.push.held_queue import HeldQueue
from eruca.contract.records import Record, encode_record
from eruca.core.consuming.flow_control import FlowLimits
from eruca.core.consuming.handler_shape import Handler, handler_shape
from eruca.core.consuming.handler_table import HandlerTable
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage

TOPIC: Final = "orders"
RECORD: Final = encode_record(Record(topic=TOPIC, body=b"an order"))


class Runner(Protocol):
    """A runner, as far as messages are concerned."""

    def add(self, held: HeldQueue) -> None:
        """Start a queue."""

    def put(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        """Accept messages."""

    def restart(self, held: HeldQueue) -> None:
        """Drop a queue's messages."""


def table_of(handler: Handler) -> HandlerTable:
    """Return a table with one handler of all messages."""
    table = HandlerTable()
    shape = handler_shape(handler)._asdict()
    table.add(TOPIC, handler, expression=None, filter_type="tag", **shape)
    return table


class Feeder:
    """Holds queues in the reader's place, and notes what could be committed of each."""

    def __init__(self, runner: Runner) -> None:
        self.commits: dict[HeldQueue, list[int]] = {}
        self._runner = runner

    def hold(self, number: int = 0) -> HeldQueue:
        """Return a queue of the consumer, empty at first."""
        held = HeldQueue(
            MessageQueue(TOPIC, "a", number),
            model="broadcasting",
            limits=FlowLimits(1_000, 10**8, 2_000),
            prefetch=Prefetch(1_000, 10**6),
            intake=self,
            offset=0,
        )
        self.commits[held] = []
        self._runner.add(held)
        return held

    def fill(self, held: HeldQueue, count: int) -> None:
        """Have *count* more messages pulled."""
        first = held.process.next_offset
        made = [
            ReceivedMessage(held.queue, first + i, RECORD, 0, len(RECORD)) for i in range(count)
        ]
        held.put(made, first + count, held.epoch)

    def put(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        """Hand messages to the runner, as the reader does."""
        self._runner.put(held, messages)

    def restart(self, held: HeldQueue) -> None:
        """Restart a queue, as the reader does."""
        self._runner.restart(held)

    def progressed(self, held: HeldQueue) -> None:
        """Note what could be committed."""
        self.commits[held].append(held.process.commit_offset)

    def skipped(self, held: HeldQueue, message: ReceivedMessage) -> bool:
        """Expect no damage."""
        raise AssertionError(message)
