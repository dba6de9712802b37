"""Transactions in the log: the control records that a follower of the log reads.

Each record is in the events topic. Its unique id is the transaction's id, so the key index finds
all records of a transaction. After a record with a ``group_size`` come the records that belong to
it, in the same write: the log has all of them or none. They are, in this order::

    transaction_begun     the half message
    transaction_checked   nothing
    transaction_decided   for a commit the message itself; an op message, unless it was parked
    transaction_parked    the half message for the operator; an op message
    transaction_carried   the records carried forward: the half message and an op message for the
                          old one; or the parked message

These records alone, read from the log's first segment on, determine the pending transactions at any
offset. Retention carries forward the records that are still needed before it deletes a segment.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

Outcome = Literal["commit", "rollback"]
Decider = Literal["producer", "check", "operator"]


class TransactionBegun(msgspec.Struct, frozen=True, tag="transaction_begun", tag_field="event"):
    """A half message was stored: it is the next record of the log."""

    transaction_id: str
    producer_group: str
    topic: str  # the message's topic after a commit
    queue_id: int
    begun_at: int  # ms since the epoch
    immunity_ms: int | None  # no check before begun_at + immunity_ms; None: the checker's setting
    group_size: int  # bytes


class TransactionChecked(msgspec.Struct, frozen=True, tag="transaction_checked", tag_field="event"):
    """A check was granted to a checker, which now asks the producer group."""

    transaction_id: str
    number: int  # 1, 2, 3 …
    checker: str
    checked_at: int  # ms since the epoch


class TransactionDecided(msgspec.Struct, frozen=True, tag="transaction_decided", tag_field="event"):
    """The transaction was finally committed or rolled back; the event is self-contained."""

    transaction_id: str
    outcome: Outcome
    by: Decider
    decided_at: int  # ms since the epoch
    producer_group: str
    topic: str
    queue_id: int
    begun_at: int  # ms since the epoch
    checks: int  # number of checks so far
    group_size: int  # bytes
    reason: str | None = None
    check_number: int | None = None  # the check that the decision answers
    was_parked: bool = False


class TransactionParked(msgspec.Struct, frozen=True, tag="transaction_parked", tag_field="event"):
    """The checks were used up: the transaction was rolled back, and an operator may commit it."""

    transaction_id: str
    checks: int  # number of checks so far
    checker: str
    parked_at: int  # ms since the epoch
    group_size: int  # bytes
    reason: str | None = None


class TransactionCarried(msgspec.Struct, frozen=True, tag="transaction_carried", tag_field="event"):
    """The transaction was stored again before retention deleted its records."""

    transaction_id: str
    producer_group: str
    topic: str
    queue_id: int
    begun_at: int  # ms since the epoch
    begun_offset: int  # log offset of its first record, which retention may have deleted
    immunity_ms: int | None
    checks: int
    checked_at: int | None  # time of the last check; ms since the epoch
    parked_at: int | None  # None: pending
    carried_at: int  # ms since the epoch
    group_size: int  # bytes


TransactionEvent: TypeAlias = (
    TransactionBegun
    | TransactionChecked
    | TransactionDecided
    | TransactionParked
    | TransactionCarried
)
TRANSACTION_EVENTS: Final = (
    TransactionBegun,
    TransactionChecked,
    TransactionDecided,
    TransactionParked,
    TransactionCarried,
)
TRANSACTION_TAGS: Final = frozenset(str(kind.__struct_config__.tag) for kind in TRANSACTION_EVENTS)
"""Tags of their control records."""

_DECODER: Final[msgspec.json.Decoder[TransactionEvent]] = msgspec.json.Decoder(TransactionEvent)


def decode_transaction_event(body: bytes) -> TransactionEvent:
    """Return the event of a control record with one of the ``TRANSACTION_TAGS``.

    Raises:
        ValueError: The body is not such an event.
    """
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"unreadable control record of a transaction: {error}") from error
