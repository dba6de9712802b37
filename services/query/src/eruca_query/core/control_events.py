"""Life events that control records report: of transactions, of timers, of deliveries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from eruca.contract.names import dead_letter_topic
from eruca.contract.queries import LifeEventKind
from eruca.contract.records import Record
from eruca.contract.transaction_events import (
    TransactionChecked,
    TransactionDecided,
    TransactionParked,
)
from eruca_query.core import control_records as control
from eruca_query.core.life_events import Detail, LifeEvent, Place, id_bytes


class _Told(NamedTuple):
    """An event without the record that reports it."""

    kind: LifeEventKind
    detail: Detail
    unique_id: str = ""
    place: Place | None = None
    waited_at: int | None = None


def control_events_of(told: control.Control, record: Record) -> Iterator[LifeEvent]:
    """Yield the life events of messages that a control record reports."""
    for part in _told_by(told):
        yield LifeEvent(
            record.log_offset,
            record.store_timestamp,
            part.kind,
            {name: value for name, value in part.detail.items() if value is not None},
            unique_id=id_bytes(part.unique_id),
            place=part.place,
            waited_at=part.waited_at,
        )


def _told_by(told: control.Control) -> Iterable[_Told]:
    match told:
        case TransactionChecked() | TransactionDecided() | TransactionParked():
            return (_of_transaction(told),)
        case control.TimersCancelled():
            return (_Told(LifeEventKind.RECALLED, {}, waited_at=at) for at in told.timers)
        case control.DeadLettersRedriven():
            topic = dead_letter_topic(told.group)
            places = (Place(topic, 0, offset) for offset in told.dead_letters)
            return _each(LifeEventKind.REDRIVEN, {"group": told.group}, places)
        case control.DeliveriesLeased():
            return _leased(told)
        case control.DeliveriesAcked():
            return _each(LifeEventKind.ACKED, {"group": told.group}, _places(told.queues))
        case control.DeliveriesExtended():
            detail = {"group": told.group, "visible_at_ms": told.visible_at}
            return _each(LifeEventKind.EXTENDED, detail, _places(told.queues))
        case control.DeliveriesNacked():
            return _nacked(told)
        case _:
            return ()


def _of_transaction(told: TransactionChecked | TransactionDecided | TransactionParked) -> _Told:
    match told:
        case TransactionChecked():
            kind = LifeEventKind.CHECKED
            detail: Detail = {"number": told.number, "checker": told.checker}
        case TransactionDecided():
            kind = LifeEventKind.DECIDED
            detail = {
                "outcome": told.outcome,
                "by": told.by,
                "reason": told.reason,
                "checks": told.checks,
                "check_number": told.check_number,
                "was_parked": told.was_parked or None,
            }
        case TransactionParked():
            kind = LifeEventKind.PARKED
            detail = {"checks": told.checks, "checker": told.checker, "reason": told.reason}
    return _Told(kind, detail, unique_id=told.transaction_id)


def _leased(told: control.DeliveriesLeased) -> Iterator[_Told]:
    for leased in told.leased:
        yield _Told(
            LifeEventKind.LEASED,
            {
                "group": told.group,
                "attempt": leased.attempt,
                "visible_at_ms": told.visible_at,
            },
            place=Place(told.topic, told.queue_id, leased.offset),
        )
    places = (Place(told.topic, told.queue_id, offset) for offset in told.finished)
    yield from _each(LifeEventKind.LEASE_EXPIRED, {"group": told.group}, places)


def _nacked(told: control.DeliveriesNacked) -> Iterator[_Told]:
    for queue in told.queues:
        for nacked in queue.leases:
            yield _Told(
                LifeEventKind.NACKED,
                {"group": told.group, "due_at_ms": nacked.due_at},
                place=Place(queue.topic, queue.queue_id, nacked.offset),
            )
        for finished in queue.finished:
            yield _Told(
                LifeEventKind.NACKED,
                {"group": told.group, "is_dead": True},
                place=Place(queue.topic, queue.queue_id, finished.offset),
            )


def _each(kind: LifeEventKind, detail: Detail, places: Iterable[Place]) -> Iterator[_Told]:
    return (_Told(kind, detail, place=place) for place in places)


def _places(queues: Iterable[control.QueueLeases]) -> Iterator[Place]:
    for queue in queues:
        for lease in queue.leases:
            yield Place(queue.topic, queue.queue_id, lease.offset)
