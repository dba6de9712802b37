"""Begin a transaction: store its half message, which nobody sees, and its event.

A client that begins the same transaction again, by an id of its own, gets the first receipt.
Another message under that id is refused. The destination is not compared: a client that begins
again may have chosen another queue.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from eruca.contract.errors import OverloadedError, TooLargeError, TransactionIdInUseError
from eruca.contract.messages import NewMessage
from eruca.contract.names import broker_group_fault
from eruca.contract.records import Host, Record
from eruca.contract.transaction_events import TransactionBegun
from eruca.contract.transactions import (
    TRANSACTION_ID_PATTERN,
    NewTransaction,
    TransactionReceipt,
)
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.half_messages import (
    HALF_PLACE,
    delay_properties,
    half_message,
    half_size_max,
    said_properties,
)
from eruca_broker.core.records.new_messages import body_bytes, stored_properties
from eruca_broker.core.records.replays import Content, difference
from eruca_broker.core.records.scheduled import PropertiesTooLargeError
from eruca_broker.core.records.times import ms_not_before, rfc3339
from eruca_broker.processors.send_message import Draft, Sender
from eruca_broker.processors.transactions.decisions import decision_of
from eruca_broker.processors.transactions.writes import (
    TransactionWrites,
    WriteOutcome,
    body_fault,
)

_RETRY_AFTER_SECONDS: Final = 5.0
_POINTER: Final = "/body/message"
_SOUND_ID: Final = re.compile(TRANSACTION_ID_PATTERN).fullmatch

Begun: TypeAlias = Callable[[TransactionReceipt | Exception], None]


class TransactionBeginning:
    """Stores half messages."""

    def __init__(
        self, writes: TransactionWrites, sender: Sender, *, broker_name: str, count_max: int
    ) -> None:
        self._writes = writes
        self._sender = sender
        self._broker_name = broker_name
        self._count_max = count_max
        self._beginning = 0  # on their way into the log; they count towards count_max

    def begin(self, request: NewTransaction, born_host: Host, done: Begun) -> None:
        """Store a half message, and call *done* once it is as durable as configured.

        Raises:
            ValidationError: The message, its id or the group's name is invalid.
            TooLargeError: The message exceeds a limit.
            TransactionIdInUseError: A transaction with this id has another message.
            AlreadyDecidedError: The transaction with this id is over.
            RecordNotFoundError: … is pending, and its half message is damaged.
            OverloadedError: The maximum of transactions is reached.
        """
        _check_group_name(request.producer_group)
        message_id = request.message.message_id
        if message_id is not None:
            _check_id(message_id)
            if self._writes.turns.is_taken(message_id):
                again = partial(self.begin, request, born_host, done)
                self._writes.turns.wait(message_id, again, done)
                return
            if (known := self._begun_before(message_id, request)) is not None:
                self._writes.counts.repeated += 1
                done(known)
                return
        self._check_room()
        draft = self._draft(request, born_host)
        [transaction_id] = draft.unique_ids
        half = self._half_message(request, draft)
        immunity = request.check_immunity_seconds
        event = TransactionBegun(
            transaction_id,
            request.producer_group,
            request.topic,
            draft.destination.queue_id,
            begun_at=self._writes.clock.now_ms(),
            immunity_ms=None if immunity is None else round(immunity * 1000),
            group_size=len(half),
        )
        self._writes.turns.take(transaction_id)
        self._beginning += 1
        settle = partial(self._begun, event, done)
        append = partial(
            self._writes.append, event, [batch_of_records(*HALF_PLACE, [half])], settle
        )
        try:
            self._sender.once_there(draft.topic, draft.destination.queue_id, append, settle)
        except Exception:
            self._beginning -= 1
            self._writes.turns.give(transaction_id)
            raise

    def _draft(self, request: NewTransaction, born_host: Host) -> Draft:
        while True:
            draft = self._sender.draft(
                request.topic, request.queue_id, [request.message], [_POINTER], born_host
            )
            [transaction_id] = draft.unique_ids
            if not self._writes.turns.is_taken(transaction_id) and (
                self._writes.store.state.transactions.get(transaction_id) is None
            ):
                return draft
            # A client has used an id that this broker would have made: try the next.

    def _half_message(self, request: NewTransaction, draft: Draft) -> bytes:
        [record] = draft.records
        try:
            half = half_message(
                record,
                draft.destination,
                transaction_id=draft.unique_ids[0],
                producer_group=request.producer_group,
                immunity_seconds=request.check_immunity_seconds,
                delay=_delay_of(request.message),
            )
        except PropertiesTooLargeError as error:
            raise TooLargeError(f"{_POINTER}: {error}") from error
        segment_bytes = self._writes.store.segment_bytes
        if len(half) > (size_max := half_size_max(segment_bytes)):
            raise TooLargeError(
                f"{_POINTER}: its half message takes {len(half)} bytes in the log; where segments "
                f"have {segment_bytes} bytes, it may take {size_max}"
            )
        return half

    def _begun(self, event: TransactionBegun, done: Begun, outcome: WriteOutcome) -> None:
        assert self._beginning > 0, "one write has settled twice"
        self._beginning -= 1
        if isinstance(outcome, Exception):
            done(outcome)
        else:
            self._writes.counts.begun += 1
            half = outcome[1]
            done(
                TransactionReceipt(
                    transaction_id=event.transaction_id,
                    broker_name=self._broker_name,
                    topic=event.topic,
                    queue_id=event.queue_id,
                    half_queue_offset=half.queue_offset,
                    half_log_offset=half.log_offset,
                    begun_at=rfc3339(event.begun_at),
                    durability=self._writes.store.durability,
                )
            )
        self._writes.turns.give(event.transaction_id)

    def _begun_before(
        self, transaction_id: str, request: NewTransaction
    ) -> TransactionReceipt | None:
        live = self._writes.store.state.transactions.get(transaction_id)
        if live is None:
            if (ended := self._writes.log.ended(transaction_id)) is not None:
                raise self._writes.conflict(decision_of(ended.event), "begun again")
            return None
        if live.parked_at is not None:
            raise self._writes.conflict(self._writes.parked_by(live), "begun again")
        half, half_offset = self._writes.log.sound_message_of(live)
        if (live.producer_group, live.topic) != (
            request.producer_group,
            request.topic,
        ) or not _is_message_of(half, request.message, transaction_id):
            raise TransactionIdInUseError(
                f"transaction {transaction_id!r} of producer group {live.producer_group!r} was "
                f"begun with another message for topic {live.topic!r}"
            )
        return TransactionReceipt(
            transaction_id=transaction_id,
            broker_name=self._broker_name,
            topic=live.topic,
            queue_id=live.queue_id,
            half_queue_offset=half.queue_offset,
            half_log_offset=half_offset,
            begun_at=rfc3339(live.begun_at),
            durability=self._writes.store.durability,
            repeated=True,
        )

    def _check_room(self) -> None:
        live = self._writes.store.state.transactions
        if len(live) + self._beginning >= self._count_max:
            raise OverloadedError(
                f"transactions_max is reached: of {self._count_max} transactions "
                f"{live.pending_count + self._beginning} are pending and {live.parked_count} "
                "parked",
                fix="decide pending and parked transactions (eruca txn list), then retry; or raise "
                "ERUCA_BROKER_TRANSACTIONS_MAX",
                retry_after_seconds=_RETRY_AFTER_SECONDS,
            )


def _is_message_of(half: Record, message: NewMessage, transaction_id: str) -> bool:
    """Tell whether the half message has the content of *message*."""
    text = stored_properties(message, transaction_id, _POINTER).decode()
    said = said_properties(text) | _delay_of(message)
    stored = Content(half.body, 0, half.flag, said_properties(half.properties))
    wanted = Content(body_bytes(message.body, _POINTER), 0, message.flag, said)
    return difference(stored, wanted) is None


def _delay_of(message: NewMessage) -> dict[str, str]:
    seconds, deliver_at = message.delay_seconds, message.deliver_at
    return delay_properties(
        level=message.delay_level,
        delay_ms=None if seconds is None else math.ceil(seconds * 1000),
        deliver_at_ms=None if deliver_at is None else ms_not_before(deliver_at),
    )


def _check_group_name(name: str) -> None:
    if (fault := broker_group_fault(name)) is not None:
        raise body_fault(
            "/body/producer_group", f"not a group's name: {fault.value.replace('_', ' ')}"
        )


def _check_id(message_id: str) -> None:
    if not _SOUND_ID(message_id):
        raise body_fault(
            f"{_POINTER}/message_id",
            "as a transaction's id it stands in paths: no blank, no /, no control character, and "
            "no dots alone",
        )
