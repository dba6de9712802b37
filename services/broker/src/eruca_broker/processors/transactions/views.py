"""Show transactions: those that are not over, and one by its id, with its history.

Source: RocketMQ 5.3 has no such view; only its logs say what happened to a half message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from eruca.contract.errors import RecordNotFoundError
from eruca.contract.messages import as_builtins
from eruca.contract.transaction_events import (
    TransactionBegun,
    TransactionCarried,
    TransactionChecked,
    TransactionDecided,
    TransactionEvent,
    TransactionParked,
)
from eruca.contract.transactions import (
    CommittedMessage,
    TransactionAsOf,
    TransactionDecision,
    TransactionDetail,
    TransactionHistoryEntry,
    TransactionList,
    TransactionState,
    TransactionSummary,
)
from eruca_broker.core.records.rendering import render
from eruca_broker.core.records.times import moment
from eruca_broker.core.state.past import about_transaction
from eruca_broker.core.state.transactions import LiveTransaction
from eruca_broker.processors.groups.past import check_past
from eruca_broker.processors.transactions.decisions import (
    decision_of,
    decision_of_parked,
    place_of,
)
from eruca_broker.processors.transactions.log import Ended, Logged, TransactionLog
from eruca_broker.processors.transactions.writes import not_found
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.state.past_states import UnknownPastError

_BODY_ROOM: Final = 16 * 1024 * 1024  # maximum bytes of a decompressed body


class Owner(NamedTuple):
    """The topic and the producer group of a transaction: rights on them are rights on it."""

    transaction_id: str
    topic: str
    producer_group: str


class TransactionViews:
    """Shows the transactions of one broker."""

    def __init__(self, store: MessageStore, log: TransactionLog, *, broker_name: str) -> None:
        self._store = store
        self._log = log
        self._broker_name = broker_name

    def page(
        self,
        *,
        state: Literal["pending", "parked"] | None,
        producer_group: str | None,
        limit: int,
        after: int | None,
    ) -> tuple[TransactionList, int | None]:
        """Return up to *limit* transactions that are not over, and the last one's place.

        Args:
            state: Only those in it.
            producer_group: Only those of it.
            limit: The maximum number.
            after: Log offset of the beginning of the preceding page's last one.
        """
        found: list[LiveTransaction] = []
        for live in self._store.state.transactions:
            if after is not None and live.begun_offset <= after:
                continue
            if state is not None and (live.parked_at is not None) != (state == "parked"):
                continue
            if producer_group is not None and live.producer_group != producer_group:
                continue
            if len(found) == limit:
                page = TransactionList(transactions=list(map(self._live_summary, found)))
                return page, found[-1].begun_offset
            found.append(live)
        return TransactionList(transactions=list(map(self._live_summary, found))), None

    def owner(self, transaction_id: str) -> Owner:
        """Return the owner of a transaction, over or not; each decision asks for it.

        Raises:
            TransactionNotFoundError: There is none with this id in the log.
            UnavailableError: A record that may be its end is damaged.
        """
        live = self._store.state.transactions.get(transaction_id)
        if live is not None:
            return Owner(transaction_id, live.topic, live.producer_group)
        ended = self._log.ended(transaction_id)
        if ended is None:
            raise not_found(transaction_id)
        return Owner(transaction_id, ended.event.topic, ended.event.producer_group)

    def get(self, transaction_id: str) -> TransactionDetail:
        """Return a transaction, over or not, with its message and history.

        Raises:
            TransactionNotFoundError: There is none with this id in the log.
        """
        live = self._store.state.transactions.get(transaction_id)
        events = self._log.events(transaction_id)
        history = [_entry(*logged) for logged in events]
        if live is not None:
            summary = self._live_summary(live)
            offset = self._message_offset(live.offset)
            message = None if offset is None else self._message(offset)
            return TransactionDetail(**dict(summary), message=message, history=history)
        for event, log_offset in reversed(events):
            if isinstance(event, TransactionDecided):
                ended = Ended(event, log_offset)
                half_offset = self._half_offset(events)
                return TransactionDetail(
                    **dict(self._ended_summary(ended, events, half_offset)),
                    message=None if half_offset is None else self._message(half_offset),
                    committed=self._committed(ended),
                    history=history,
                )
        raise not_found(transaction_id)

    async def as_of(self, transaction_id: str, log_offset: int) -> TransactionAsOf:
        """Return the state of a transaction after all records before *log_offset*.

        Raises:
            ValidationError: The log does not reach that far yet.
            OverloadedError: Too many such questions wait.
        """
        check_past(self._store, log_offset)
        events = self._log.events(transaction_id)
        decided = _decided_before(events, log_offset)
        if decided is not None:
            state: TransactionState = "committed" if decided.outcome == "commit" else "rolled_back"
            return _as_of(transaction_id, log_offset, state, checks=decided.checks)
        if any(isinstance(e, TransactionBegun) and at >= log_offset for e, at in events):
            return _as_of(transaction_id, log_offset, "not_begun")
        try:
            past = await self._store.past.before(log_offset, about_transaction(transaction_id))
        except UnknownPastError as error:
            return _as_of(transaction_id, log_offset, None, unknown=str(error))
        live = past.state.transactions.get(transaction_id)
        if live is None:
            return _as_of(
                transaction_id,
                log_offset,
                None,
                unknown="it was not open then, and the log has no event of it from before; it may "
                "not have begun, or retention has deleted its end",
            )
        is_parked = live.parked_at is not None
        return _as_of(
            transaction_id, log_offset, "parked" if is_parked else "pending", checks=live.checks
        )

    def _live_summary(self, live: LiveTransaction) -> TransactionSummary:
        is_parked = live.parked_at is not None
        return TransactionSummary(
            transaction_id=live.transaction_id,
            broker_name=self._broker_name,
            producer_group=live.producer_group,
            topic=live.topic,
            queue_id=live.queue_id,
            state="parked" if is_parked else "pending",
            begun_at=moment(live.begun_at),
            check_immunity_seconds=_seconds(live.immunity_ms),
            checks=live.checks,
            last_check_at=None if live.checked_at is None else moment(live.checked_at),
            decision=self._parked_decision(live) if is_parked else None,
            half_log_offset=None if is_parked else self._message_offset(live.offset),
        )

    def _parked_decision(self, live: LiveTransaction) -> TransactionDecision:
        return decision_of_parked(live, self._log.parked(live)).shown()

    def _ended_summary(
        self, ended: Ended, events: Sequence[Logged], half_offset: int | None
    ) -> TransactionSummary:
        event = ended.event
        state: TransactionState = "committed" if event.outcome == "commit" else "rolled_back"
        immunity_ms = next(_immunities(events), None)
        checked_at = [e.checked_at for e, _ in events if isinstance(e, TransactionChecked)]
        return TransactionSummary(
            transaction_id=event.transaction_id,
            broker_name=self._broker_name,
            producer_group=event.producer_group,
            topic=event.topic,
            queue_id=event.queue_id,
            state=state,
            begun_at=moment(event.begun_at),
            check_immunity_seconds=_seconds(immunity_ms),
            checks=event.checks,
            last_check_at=moment(checked_at[-1]) if checked_at else None,
            decision=decision_of(event).shown(),
            half_log_offset=half_offset,
        )

    def _half_offset(self, events: Sequence[Logged]) -> int | None:
        """Return the log offset of the latest half message, if it still exists."""
        for event, log_offset in reversed(events):
            is_half = isinstance(event, TransactionBegun) or (
                isinstance(event, TransactionCarried) and event.parked_at is None
            )
            if is_half:
                return self._message_offset(log_offset)
        return None

    def _message_offset(self, event_offset: int) -> int | None:
        try:
            return self._log.message_offset(event_offset)
        except RecordNotFoundError:  # damaged; that must not hide the others
            return None

    def _message(self, log_offset: int) -> dict[str, Any] | None:
        try:
            record = self._store.log.record(log_offset)
        except RecordNotFoundError:
            return None
        shown: dict[str, Any] = as_builtins(render(record, body_room=_BODY_ROOM).message)
        return shown

    def _committed(self, ended: Ended) -> CommittedMessage | None:
        place = place_of(self._log, ended)
        if place is None:
            return None
        return CommittedMessage.model_validate(msgspec.to_builtins(place))


def _decided_before(events: Sequence[Logged], log_offset: int) -> TransactionDecided | None:
    """Return the decision before *log_offset* of a transaction that did not begin again since."""
    found: TransactionDecided | None = None
    for event, at in events:
        if at < log_offset:
            if isinstance(event, TransactionDecided):
                found = event
            elif isinstance(event, TransactionBegun):
                found = None
    return found


def _as_of(
    transaction_id: str,
    log_offset: int,
    state: Literal["not_begun"] | TransactionState | None,
    *,
    unknown: str | None = None,
    checks: int | None = None,
) -> TransactionAsOf:
    return TransactionAsOf(
        transaction_id=transaction_id,
        log_offset=log_offset,
        state=state,
        unknown=unknown,
        checks=checks,
    )


def _entry(event: TransactionEvent, log_offset: int) -> TransactionHistoryEntry:
    match event:
        case TransactionBegun():
            return TransactionHistoryEntry(
                event="begun", at=moment(event.begun_at), log_offset=log_offset, by="producer"
            )
        case TransactionChecked():
            return TransactionHistoryEntry(
                event="checked",
                at=moment(event.checked_at),
                log_offset=log_offset,
                check_number=event.number,
                checker=event.checker,
            )
        case TransactionDecided():
            return TransactionHistoryEntry(
                event="committed" if event.outcome == "commit" else "rolled_back",
                at=moment(event.decided_at),
                log_offset=log_offset,
                by=event.by,
                check_number=event.check_number,
                reason=event.reason,
            )
        case TransactionParked():
            return TransactionHistoryEntry(
                event="parked",
                at=moment(event.parked_at),
                log_offset=log_offset,
                by="limit",
                checker=event.checker,
                reason=event.reason,
            )
        case TransactionCarried():
            return TransactionHistoryEntry(
                event="carried", at=moment(event.carried_at), log_offset=log_offset
            )


def _immunities(events: Sequence[Logged]) -> Iterator[int | None]:
    for event, _ in events:
        if isinstance(event, TransactionBegun | TransactionCarried):
            yield event.immunity_ms


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
