"""Filling an empty store through one side, and writing on to a store the other side filled."""

from __future__ import annotations

from itertools import chain

from interop import data
from interop.checks import Checks
from interop.driver import Driver
from interop.messages import Message, NewMessage, by_place, stored, without_message_id
from interop.side import GROUP, QUEUE_COUNT, Contents, Side

_COMMITTED = NewMessage(data.DECIDED, b"committed", tag="tx", keys=("decision",))
_ROLLED_BACK = NewMessage(data.DECIDED, b"rolled back", tag="tx", keys=("decision",))
_DELAYED = NewMessage(data.DECIDED, b"one second late", keys=("decision",), delay_level=1)


def fill(checks: Checks, side: Side, count: int, *, with_delay: bool) -> Contents:
    """Send everything there is through *side*; return what *side* itself reads back.

    A group consumes the first half of the flights, so that its committed offsets lie inside.
    A RocketMQ that is killed may deliver a delayed message again, so *with_delay* is for others.
    """
    for topic in (data.FLIGHTS, data.ODDITIES, data.BATCHES, data.LONG_TOPIC):
        side.create_topic(topic, QUEUE_COUNT)
    flights = data.flights(count)
    sent = _send(side, flights[: count // 2])
    consumed = side.consume(data.FLIGHTS, group=GROUP, count=count // 2)
    checks.same_entries(f"{side.name}'s group consumes", by_place(consumed), by_place(sent))
    sent += _send(side, [*flights[count // 2 :], *data.oddities(), data.far()])
    sent += chain.from_iterable(_send_batch(side, batch) for batch in data.batches())
    messages = [message for topic in _topics(sent) for message in side.read_topic(topic)]
    are_batch_ids_known = not isinstance(side, Driver)
    checks.same_entries(
        f"{side.name} reads what it was sent",
        by_place(_comparable(messages, are_batch_ids_known=are_batch_ids_known)),
        by_place(_comparable(sent, are_batch_ids_known=are_batch_ids_known)),
    )
    if isinstance(side, Driver):
        messages += _fill_beyond_eruca(checks, side, with_delay=with_delay)
    return Contents(messages, side.group_offsets(GROUP, data.FLIGHTS))


def write_on(checks: Checks, side: Side, contents: Contents, more: list[NewMessage]) -> Contents:
    """Let the group consume the rest and send *more*; return what the store must hold then."""
    committed = side.group_offsets(GROUP, data.FLIGHTS)
    rest = [
        message
        for message in contents.of_topic(data.FLIGHTS)
        if message.queue_offset >= committed.get(message.queue_id, 0)
    ]
    consumed = side.consume(data.FLIGHTS, group=GROUP, count=len(rest))
    checks.same_entries(
        f"{side.name}'s group goes on where it was", by_place(consumed), by_place(rest)
    )
    ends = {queue_id: end for queue_id, (_, end) in side.queue_ranges(data.FLIGHTS).items()}
    sent = _send(side, more)
    firsts = {
        queue_id: min(m.queue_offset for m in sent if m.queue_id == queue_id)
        for queue_id in {message.queue_id for message in sent}
    }
    expected = {queue_id: ends[queue_id] for queue_id in firsts}
    checks.equal(f"{side.name} goes on with the next queue offsets", firsts, expected)
    return Contents([*contents.messages, *sent], side.group_offsets(GROUP, data.FLIGHTS))


def _send(side: Side, messages: list[NewMessage]) -> list[Message]:
    receipts = side.send(messages)
    return [stored(message, receipt) for message, receipt in zip(messages, receipts, strict=True)]


def _send_batch(side: Side, messages: list[NewMessage]) -> list[Message]:
    receipts = side.send_batch(messages)
    return [stored(message, receipt) for message, receipt in zip(messages, receipts, strict=True)]


def _topics(messages: list[Message]) -> list[str]:
    return sorted({message.topic for message in messages})


def _comparable(messages: list[Message], *, are_batch_ids_known: bool) -> list[Message]:
    # RocketMQ stores a whole batch under one more unique id, which its sender is not told.
    return [
        message
        if are_batch_ids_known or message.topic != data.BATCHES
        else without_message_id(message)
        for message in messages
    ]


def _fill_beyond_eruca(checks: Checks, client: Driver, *, with_delay: bool) -> list[Message]:
    """Send what brings other kinds of records into the log: transactions, a delay."""
    client.create_topic(data.DECIDED, QUEUE_COUNT)
    expected = [_COMMITTED.body]
    client.send_in_transaction(_COMMITTED, group="interop-transactions", commit=True)
    client.send_in_transaction(_ROLLED_BACK, group="interop-transactions", commit=False)
    if with_delay:
        client.send([_DELAYED])
        expected.append(_DELAYED.body)
    delivered = client.consume(data.DECIDED, group="interop-decided", count=len(expected))
    checks.equal(
        "RocketMQ delivers what was decided and delayed",
        sorted(message.body for message in delivered),
        sorted(expected),
    )
    return client.read_topic(data.DECIDED)
