"""A transaction that RocketMQ leaves undecided in a store, and that Eruca's checks decide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import eruca
from interop import data
from interop.checks import Checks
from interop.driver import Driver
from interop.eruca_client import ErucaClient
from interop.messages import Message, NewMessage
from interop.side import QUEUE_COUNT, Contents, ends_of

PRODUCER_GROUP: Final = "interop-transactions"
_UNDECIDED: Final = NewMessage(
    data.DECIDED,
    b"decided by a check",
    tag="tx",
    keys=("decision",),
    properties={"begun by": "RocketMQ"},
)


def leave_undecided(client: Driver) -> str:
    """Send a half message and never decide it; return the transaction's id."""
    client.create_topic(data.DECIDED, QUEUE_COUNT)
    return client.send_in_transaction(_UNDECIDED, group=PRODUCER_GROUP, decision="UNKNOW")


def decide(
    checks: Checks, side: ErucaClient, contents: Contents, *, are_others_decided: bool
) -> Contents:
    """Find the undecided transaction in *contents*, let a check commit it; return the new contents.

    RocketMQ records a decision some seconds late, and a kill may lose it: *are_others_decided* says
    that there was no kill.
    """
    transaction_id = contents.undecided
    if transaction_id is None:
        return contents
    pending = side.pending_transactions()
    if not are_others_decided:
        pending = [one for one in pending if one == transaction_id]
    checks.equal("Eruca knows what nobody has decided", pending, [transaction_id])
    places = {message.place for message in side.read_topic(data.DECIDED)}
    asked = side.commit_by_check(PRODUCER_GROUP, transaction_id)
    expected = _said(_UNDECIDED, transaction_id)
    checks.equal("Eruca asks what became of it", _said(asked, asked.message_id), expected)
    after = side.read_topic(data.DECIDED)
    checks.equal(
        "Eruca delivers what a check has committed",
        [_said(message, message.message_id) for message in after if message.place not in places],
        [expected],
    )
    messages = [m for m in contents.messages if m.topic != data.DECIDED] + after
    ends = {**contents.ends, **ends_of(after)}
    return replace(contents, messages=messages, ends=ends, undecided=None)


def _said(
    message: NewMessage | Message | eruca.ReceivedMessage, message_id: str | None
) -> tuple[Any, ...]:
    """Return a message's fields that do not depend on its place."""
    keys, properties = tuple(message.keys), dict(message.properties)
    return message_id, message.topic, message.body, message.tag, keys, properties
