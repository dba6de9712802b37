"""Fill an empty store through one side, and write on to a store that the other side filled."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

from interop import data
from interop.checks import Checks
from interop.driver import Driver
from interop.messages import Message, NewMessage, as_sent, by_place, stored, without_message_id
from interop.side import GROUP, QUEUE_COUNT, Contents, Side, ends_of
from interop.undecided import PRODUCER_GROUP, leave_undecided

_COMMITTED: Final = NewMessage(data.DECIDED, b"committed", tag="tx", keys=("decision",))
_ROLLED_BACK: Final = NewMessage(data.DECIDED, b"rolled back", tag="tx", keys=("decision",))
_DELAYED: Final = NewMessage(data.DECIDED, b"a second late", keys=("decision",), delay_level=1)


def fill(checks: Checks, side: Side, count: int, *, with_delay: bool) -> Contents:
    """Send all test messages through *side*; return what *side* itself reads back.

    A group consumes the first half of the flights, so that its committed offsets are in the middle.
    A killed RocketMQ may redeliver a delayed message; *with_delay* is for other variants.
    """
    for topic in (data.FLIGHTS, data.ODDITIES, data.BATCHES, data.LONG_TOPIC):
        side.create_topic(topic, QUEUE_COUNT)
    flights = data.flights(count)
    sent = _send(side, flights[: count // 2])
    consumed = side.consume(data.FLIGHTS, group=GROUP, count=count // 2)
    what = f"{side.name}'s group consumes what was sent"
    checks.same_entries(what, by_place(map(as_sent, consumed)), by_place(sent))
    sent += _send(side, [*flights[count // 2 :], *data.oddities(), data.far()])
    sent += chain.from_iterable(_send_batch(side, batch) for batch in data.batches())
    messages = _read_back(checks, side, sent)
    undecided = None
    if isinstance(side, Driver):
        undecided = leave_undecided(side)
        messages += _fill_beyond_eruca(checks, side, with_delay=with_delay)
    committed = side.group_offsets(GROUP, data.FLIGHTS)
    return Contents(messages, ends_of(messages), committed, undecided)


def write_on(checks: Checks, side: Side, contents: Contents, more: list[NewMessage]) -> Contents:
    """Let the group consume the rest, send *more*, create a topic; return the new contents."""
    _consume_rest(checks, side, contents)
    side.create_topic(data.ADDED, QUEUE_COUNT)
    sent = _send(side, [*more, *data.added()])
    first_offsets = {
        queue: min(m.queue_offset for m in sent if (m.topic, m.queue_id) == queue)
        for queue in ends_of(sent)
    }
    expected = {queue: contents.ends.get(queue, 0) for queue in first_offsets}
    what = f"{side.name} goes on with the next queue offsets"
    checks.same_entries(what, first_offsets, expected)
    untouched = [m for m in contents.messages if m.topic != data.FLIGHTS]
    before = map(as_sent, contents.of_topic(data.FLIGHTS))
    messages = [*untouched, *_read_back(checks, side, [*before, *sent])]
    return Contents(messages, ends_of(messages), side.group_offsets(GROUP, data.FLIGHTS))


def check_automatic_topic(checks: Checks, side: Side) -> None:
    """Send to a topic that was never created."""
    sent = _send(side, [NewMessage(data.AUTOMATIC, b"first")])
    found = map(as_sent, side.read_topic(data.AUTOMATIC))
    checks.same_entries(f"{side.name} creates a topic by itself", by_place(found), by_place(sent))


def _consume_rest(checks: Checks, side: Side, contents: Contents) -> None:
    committed = side.group_offsets(GROUP, data.FLIGHTS)
    rest = [
        message
        for message in contents.of_topic(data.FLIGHTS)
        if message.queue_offset >= committed.get(message.queue_id, 0)
    ]
    consumed = side.consume(data.FLIGHTS, group=GROUP, count=len(rest))
    what = f"{side.name}'s group goes on where it was"
    checks.same_entries(what, by_place(consumed), by_place(rest))


def _send(side: Side, messages: list[NewMessage]) -> list[Message]:
    receipts = side.send(messages)
    return [stored(message, receipt) for message, receipt in zip(messages, receipts, strict=True)]


def _send_batch(side: Side, messages: list[NewMessage]) -> list[Message]:
    receipts = side.send_batch(messages)
    sent = [stored(message, receipt) for message, receipt in zip(messages, receipts, strict=True)]
    # RocketMQ stores a batch under one additional unique id, which its sender does not learn.
    return [without_message_id(m) for m in sent] if isinstance(side, Driver) else sent


def _read_back(checks: Checks, side: Side, sent: Iterable[Message]) -> list[Message]:
    expected = by_place(sent)
    read = [
        m for topic in sorted({topic for topic, _, _ in expected}) for m in side.read_topic(topic)
    ]
    unknown = {place for place, message in expected.items() if message.message_id is None}
    found = [without_message_id(m) if m.place in unknown else m for m in map(as_sent, read)]
    checks.same_entries(f"{side.name} reads what it was sent", by_place(found), expected)
    return read


def _fill_beyond_eruca(checks: Checks, client: Driver, *, with_delay: bool) -> list[Message]:
    """Send messages that bring other kinds of records into the log: transactions, a delay."""
    expected = [_COMMITTED.body]
    client.send_in_transaction(_COMMITTED, group=PRODUCER_GROUP, decision="COMMIT_MESSAGE")
    client.send_in_transaction(_ROLLED_BACK, group=PRODUCER_GROUP, decision="ROLLBACK_MESSAGE")
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
