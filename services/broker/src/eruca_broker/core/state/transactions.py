"""Transactions that are not over: the fold that knows which are pending, and which are parked.

A transaction is a machine whose states are told by events alone::

                 begun             checked (n + 1)
    (none) ──────────────► pending ───────────┐
                           │ │ ▲ └────────────┘
         decided: commit   │ │ └─ carried: stored again, all else as it was
         or rollback       │ └──── parked: its checks are used up
                           ▼         ▼
                        (over) ◄── parked ─── carried: stored again
                          decided: by an operator

What is over is not kept: its last event is in the log, and found there by the transaction's id. An
event that does not fit the state changes nothing, so the fold is total; the broker records none of
them, for it decides one thing at a time about a transaction.

Each takes about 300 bytes, its id included.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern

import msgspec

from eruca.contract.transaction_events import (
    TransactionBegun,
    TransactionCarried,
    TransactionChecked,
    TransactionDecided,
    TransactionEvent,
    TransactionParked,
)


class LiveTransaction(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A transaction that is pending or parked; also as it stands in a snapshot.

    One that was imported from RocketMQ has no event before it is carried; both its offsets are its
    half message's own. So is ``offset`` of one that RocketMQ has stored again.
    """

    transaction_id: str
    producer_group: str
    topic: str  # where the message is committed to
    queue_id: int
    begun_at: int  # ms since the epoch
    immunity_ms: int | None  # no check before; None: as the checker is set
    begun_offset: int  # log offset of its beginning: also the order in which they are listed
    offset: int  # log offset of the event right behind which its message lies now, or its own
    checks: int = 0
    checked_at: int | None = None  # ms since the epoch, the last time
    parked_at: int | None = None  # ms since the epoch; None: it is pending


class Transactions:
    """All transactions of a broker that are not over, in the order in which they were begun."""

    def __init__(self) -> None:
        self._live: dict[str, LiveTransaction] = {}
        self.parked_count = 0

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[LiveTransaction]:
        return iter(self._live.values())

    @property
    def pending_count(self) -> int:
        """The number of transactions that are neither decided nor parked."""
        return len(self._live) - self.parked_count

    def get(self, transaction_id: str) -> LiveTransaction | None:
        """Return a transaction; None where there is none of this id, or it is over."""
        return self._live.get(transaction_id)

    def apply(self, event: TransactionEvent, log_offset: int) -> None:
        """Fold the event recorded at *log_offset*."""
        live = self._live.get(event.transaction_id)
        match event:
            case TransactionBegun():
                if live is None:
                    self._put(_begun(event, log_offset))
            case TransactionChecked():
                if live and live.parked_at is None and event.number == live.checks + 1:
                    self._replace(live, checks=event.number, checked_at=event.checked_at)
            case TransactionDecided():
                if live is not None and event.was_parked == (live.parked_at is not None):
                    del self._live[event.transaction_id]
                    self.parked_count -= event.was_parked
            case TransactionParked():
                if live is not None and live.parked_at is None:
                    self._replace(live, parked_at=event.parked_at, offset=log_offset)
                    self.parked_count += 1
            case TransactionCarried():
                self._carry(event, log_offset)

    def oldest_offset(self) -> int | None:
        """Return the log offset from which on the log is needed; None where none of it is."""
        return min((live.offset for live in self._live.values()), default=None)

    def before(self, log_offset: int) -> list[LiveTransaction]:
        """Return those whose message lies before *log_offset*, in log order."""
        found = [live for live in self._live.values() if live.offset < log_offset]
        return sorted(found, key=_offset)

    def copy(self) -> Transactions:
        """Return the same, to change by itself."""
        copied = Transactions()
        copied._live = dict(self._live)
        copied.parked_count = self.parked_count
        return copied

    def load(self, live: LiveTransaction) -> None:
        """Take over a transaction from a snapshot."""
        self._put(live)

    def forget(self, transaction_id: str) -> None:
        """Drop a pending transaction that RocketMQ has ended."""
        del self._live[transaction_id]

    def move(self, transaction_id: str, offset: int) -> None:
        """Note that RocketMQ has stored a transaction's half message again, at *offset*."""
        self._replace(self._live[transaction_id], offset=offset)

    def _put(self, live: LiveTransaction) -> None:
        shared = msgspec.structs.replace(
            live, producer_group=intern(live.producer_group), topic=intern(live.topic)
        )
        self._live[live.transaction_id] = shared
        self.parked_count += live.parked_at is not None

    def _replace(self, live: LiveTransaction, **changes: object) -> None:
        self._live[live.transaction_id] = msgspec.structs.replace(live, **changes)

    def _carry(self, event: TransactionCarried, log_offset: int) -> None:
        known = self._live.get(event.transaction_id)
        if known is not None:
            self._replace(known, offset=log_offset)
        else:
            self._put(_carried(event, log_offset))


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
