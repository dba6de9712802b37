"""Transactions that are not over: the fold that knows the pending and the parked ones.

A transaction is a state machine, and :data:`TRANSACTION` is its table: only events change its
state.

A transaction that is over is not kept. Its last event is in the log, and the transaction's id finds
it there. An event that does not fit the state changes nothing, so the fold is total. The broker
never records such an event, because it makes one decision at a time about a transaction.

Each transaction takes about 300 bytes, its id included.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from sys import intern
from typing import Final

import msgspec
from msgspec.structs import replace

from eruca.contract.transaction_events import (
    TransactionBegun,
    TransactionCarried,
    TransactionChecked,
    TransactionDecided,
    TransactionEvent,
    TransactionParked,
)
from eruca_chassis.machines import Machine


class Standing(StrEnum):
    """The state of a transaction, as far as the fold knows it."""

    NOT_LIVE = "not live"  # not begun, or over
    PENDING = "pending"
    PARKED = "parked"


class Step(StrEnum):
    """A kind of event, as the table distinguishes them."""

    BEGUN = "begun"
    CHECKED = "checked"
    DECIDED = "decided"  # by the producer, a check or an operator
    PARKED = "parked"
    CARRIED = "carried"
    PARKED_CARRIED = "parked one carried"
    PARKED_DECIDED = "parked one decided"  # by an operator


TRANSACTION: Final = Machine(
    (Standing.NOT_LIVE, Step.BEGUN, Standing.PENDING),
    # The beginning of these two is no longer in the log that is folded.
    (Standing.NOT_LIVE, Step.CARRIED, Standing.PENDING),
    (Standing.NOT_LIVE, Step.PARKED_CARRIED, Standing.PARKED),
    (Standing.PENDING, Step.CHECKED, Standing.PENDING),
    (Standing.PENDING, Step.CARRIED, Standing.PENDING),
    (Standing.PENDING, Step.DECIDED, Standing.NOT_LIVE),
    (Standing.PENDING, Step.PARKED, Standing.PARKED),
    (Standing.PARKED, Step.PARKED_CARRIED, Standing.PARKED),
    (Standing.PARKED, Step.PARKED_DECIDED, Standing.NOT_LIVE),
)


class LiveTransaction(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A transaction that is pending or parked; also its form in a snapshot.

    A transaction that was imported from RocketMQ has no event until it is carried. Then both its
    offsets are its half message's own. So is ``offset`` of one that RocketMQ has stored again.
    """

    transaction_id: str
    producer_group: str
    topic: str  # the queue of the message once it is committed
    queue_id: int
    begun_at: int  # ms since the epoch
    immunity_ms: int | None  # no check before; None: the checker's setting
    begun_offset: int  # log offset of its beginning: also the order in which they are listed
    offset: int  # log offset of the event directly before its message now, or its own
    checks: int = 0
    checked_at: int | None = None  # ms since the epoch, the last time
    parked_at: int | None = None  # ms since the epoch; None: it is pending


class Transactions:
    """All transactions of a broker that are not over, in the order in which they began."""

    def __init__(self) -> None:
        self._live: dict[str, LiveTransaction] = {}
        self.parked_count = 0

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[LiveTransaction]:
        return iter(self._live.values())

    @property
    def pending_count(self) -> int:
        """Return the number of transactions that are neither decided nor parked."""
        return len(self._live) - self.parked_count

    def get(self, transaction_id: str) -> LiveTransaction | None:
        """Return a transaction; None if there is none of this id, or it is over."""
        return self._live.get(transaction_id)

    def apply(self, event: TransactionEvent, log_offset: int) -> None:
        """Fold the event recorded at *log_offset*."""
        live = self._live.get(event.transaction_id)
        standing = TRANSACTION.after(standing_of(live), _step_of(event))
        if standing is None:
            return
        after: LiveTransaction | None
        match event:
            case TransactionBegun():
                after = _begun(event, log_offset)
            case TransactionChecked():
                assert live is not None
                if event.number != live.checks + 1:
                    return
                after = replace(live, checks=event.number, checked_at=event.checked_at)
            case TransactionDecided():
                after = None
            case TransactionParked():
                assert live is not None
                after = replace(live, parked_at=event.parked_at, offset=log_offset)
            case TransactionCarried():
                # The carried message is further on; everything else is unchanged.
                after = (
                    _carried(event, log_offset)
                    if live is None
                    else replace(live, offset=log_offset)
                )
        assert standing_of(after) is standing
        self._become(event.transaction_id, after)

    def oldest_offset(self) -> int | None:
        """Return the log offset from which on the log is needed; None if none of it is."""
        return min((live.offset for live in self._live.values()), default=None)

    def before(self, log_offset: int) -> list[LiveTransaction]:
        """Return those whose message is before *log_offset*, in log order."""
        found = [live for live in self._live.values() if live.offset < log_offset]
        return sorted(found, key=_offset)

    def copy(self) -> Transactions:
        """Return an independent copy."""
        copied = Transactions()
        copied._live = dict(self._live)
        copied.parked_count = self.parked_count
        return copied

    def load(self, live: LiveTransaction) -> None:
        """Add a transaction from a snapshot, which contains each once."""
        assert live.transaction_id not in self._live
        self._become(live.transaction_id, live)

    def forget(self, transaction_id: str) -> None:
        """Drop a pending transaction that RocketMQ has ended."""
        assert standing_of(self._live[transaction_id]) is Standing.PENDING
        self._become(transaction_id, None)

    def move(self, transaction_id: str, offset: int) -> None:
        """Note that RocketMQ has stored a transaction's half message again, at *offset*."""
        live = self._live[transaction_id]
        assert standing_of(live) is Standing.PENDING  # RocketMQ has no parked ones
        assert offset > live.offset, "what is stored again lies further on"
        self._become(transaction_id, replace(live, offset=offset))

    def _become(self, transaction_id: str, after: LiveTransaction | None) -> None:
        """Keep a transaction as it is now, or drop it if it is over."""
        before = (
            self._live.pop(transaction_id, None)
            if after is None
            else self._live.get(transaction_id)
        )
        if after is not None:
            assert after.begun_offset <= after.offset, "a message is stored again only further on"
            self._live[transaction_id] = after if before else _shared(after)
        was_parked = standing_of(before) is Standing.PARKED
        self.parked_count += (standing_of(after) is Standing.PARKED) - was_parked
        assert 0 <= self.parked_count <= len(self._live)


def standing_of(live: LiveTransaction | None) -> Standing:
    """Return the state of a transaction; None is one that the fold does not know."""
    if live is None:
        return Standing.NOT_LIVE
    return Standing.PENDING if live.parked_at is None else Standing.PARKED


def _step_of(event: TransactionEvent) -> Step:
    match event:
        case TransactionBegun():
            return Step.BEGUN
        case TransactionChecked():
            return Step.CHECKED
        case TransactionDecided():
            return Step.PARKED_DECIDED if event.was_parked else Step.DECIDED
        case TransactionParked():
            return Step.PARKED
        case TransactionCarried():
            return Step.CARRIED if event.parked_at is None else Step.PARKED_CARRIED


def _shared(live: LiveTransaction) -> LiveTransaction:
    """Return the same transaction, with names that many transactions share in memory."""
    return replace(live, producer_group=intern(live.producer_group), topic=intern(live.topic))


def _begun(event: TransactionBegun, log_offset: int) -> LiveTransaction:
    return LiveTransaction(
        event.transaction_id,
        event.producer_group,
        event.topic,
        event.queue_id,
        event.begun_at,
        event.immunity_ms,
        begun_offset=log_offset,
        offset=log_offset,
    )


def _carried(event: TransactionCarried, log_offset: int) -> LiveTransaction:
    return LiveTransaction(
        event.transaction_id,
        event.producer_group,
        event.topic,
        event.queue_id,
        event.begun_at,
        event.immunity_ms,
        begun_offset=event.begun_offset,
        offset=log_offset,
        checks=event.checks,
        checked_at=event.checked_at,
        parked_at=event.parked_at,
    )


def _offset(live: LiveTransaction) -> int:
    return live.offset
