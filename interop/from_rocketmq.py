"""RocketMQ writes the store: what goes in, and what its own client reads back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from interop import data
from interop.checks import Checks
from interop.messages import Message, NewMessage, by_place, stored, without_message_id
from interop.rocketmq import RocketMq

QUEUE_COUNT: Final = 4
GROUP: Final = "interop-group"
_COMMITTED: Final = NewMessage(data.DECIDED, b"committed", tag="tx", keys=("decision",))
_ROLLED_BACK: Final = NewMessage(data.DECIDED, b"rolled back", tag="tx", keys=("decision",))
_DELAYED: Final = NewMessage(data.DECIDED, b"one second late", keys=("decision",), delay_level=1)
TOPICS: Final = (data.FLIGHTS, data.ODDITIES, data.BATCHES, data.LONG_TOPIC, data.DECIDED)


@dataclass(frozen=True, slots=True)
class Written:
    """What RocketMQ's own client reads back, and where its group has come to."""

    messages: list[Message]
    committed: dict[int, int]  # GROUP's offsets in FLIGHTS, by queue

    def of_topic(self, topic: str) -> list[Message]:
        """Return one topic's messages."""
        return [message for message in self.messages if message.topic == topic]


def write(checks: Checks, cluster: RocketMq, count: int) -> Written:
    """Fill the store through RocketMQ's client, and read everything back with it."""
    client = cluster.client
    for topic in TOPICS:
        client.create_topic(topic, QUEUE_COUNT, cluster.address)
    sent = _send(cluster, count)
    decided = client.subscribe(data.DECIDED, "*", group="interop-decided", count=2)
    consumed = client.subscribe(data.FLIGHTS, "*", group=GROUP, count=count)
    messages = [message for topic in TOPICS for message in client.read_topic(topic)]
    batched = [message for message in messages if message.topic == data.BATCHES]
    known = [message for message in messages if message.topic not in {data.BATCHES, data.DECIDED}]
    # RocketMQ stores a batch's messages under one id and tells its sender other ones.
    known += map(without_message_id, batched)
    checks.same_entries("RocketMQ reads what it was sent", by_place(known), by_place(sent))
    checks.equal(
        "RocketMQ delivers what was committed and what was delayed",
        sorted(message.body for message in decided),
        sorted([_COMMITTED.body, _DELAYED.body]),
    )
    checks.equal("RocketMQ's group consumes all flights", len(consumed), count)
    return Written(messages, client.group_offsets(GROUP, data.FLIGHTS))


def _send(cluster: RocketMq, count: int) -> list[Message]:
    client = cluster.client
    single = [*data.flights(count), *data.oddities(), NewMessage(data.LONG_TOPIC, b"far")]
    receipts = client.send(single)
    sent = [stored(message, receipt) for message, receipt in zip(single, receipts, strict=True)]
    for batch in data.batches():
        for message, receipt in zip(batch, client.send_batch(batch), strict=True):
            sent.append(without_message_id(stored(message, receipt)))
    client.send([_DELAYED])
    client.send_in_transaction(_COMMITTED, group="interop-transactions", commit=True)
    client.send_in_transaction(_ROLLED_BACK, group="interop-transactions", commit=False)
    return sent
