"""Transactions in the log: the control records that a follower of it reads.

Each stands in the events' topic, with the transaction's id as its unique id, so that the key index
finds all of a transaction. Those with a ``group_size`` are followed by records that belong to them,
in one write: all of it is in the log, or nothing. In this order::

    transaction_begun     the half message
    transaction_checked   nothing
    transaction_decided   for a commit the message itself; an op message, unless it was parked
    transaction_parked    the half message for the operator; an op message
    transaction_carried   what was carried forward, once more: the half message and an op message
                          for the old one; or the parked message

What is pending at any place of the log follows from these records alone, from the log's first
segment on: retention carries forward what would be lost, before it deletes anything.
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
    topic: str  # where the message goes, if it is committed
    queue_id: int
    begun_at: int  # ms since the epoch
    immunity_ms: int | None  # since begun_at; no check before; None: as the checker is set
    group_size: int  # bytes


class TransactionChecked(msgspec.Struct, frozen=True, tag="transaction_checked", tag_field="event"):
    """A check was granted to a checker: it asks the producer group now."""

    transaction_id: str
    number: int  # 1, 2, 3 …
    checker: str
    checked_at: int  # ms since the epoch


class TransactionDecided(msgspec.Struct, frozen=True, tag="transaction_decided", tag_field="event"):
    """It was committed or rolled back, for good; by itself this tells of the transaction."""

    transaction_id: str
    outcome: Outcome
    by: Decider
    decided_at: int  # ms since the epoch
    producer_group: str
    topic: str
    queue_id: int
    begun_at: int  # ms since the epoch
    checks: int  # how many there were
    group_size: int  # bytes
    reason: str | None = None
    check_number: int | None = None  # which check was answered by it
    was_parked: bool = False


class TransactionParked(msgspec.Struct, frozen=True, tag="transaction_parked", tag_field="event"):
    """It was rolled back since its checks were used up, and waits for an operator."""

    transaction_id: str
    checks: int  # how many there were
    checker: str
    parked_at: int  # ms since the epoch
    group_size: int  # bytes
    reason: str | None = None


class TransactionCarried(msgspec.Struct, frozen=True, tag="transaction_carried", tag_field="event"):
    """It lives on, stored again before retention deleted what it was made of."""

    transaction_id: str
    producer_group: str
    topic: str
    queue_id: int
    begun_at: int  # ms since the epoch
    begun_offset: int  # log offset of its first record, where there may be nothing any more
    immunity_ms: int | None
    checks: int
    checked_at: int | None  # the last time; ms since the epoch
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
        ValueError: The body is none.
    """
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"unreadable control record of a transaction: {error}") from error
