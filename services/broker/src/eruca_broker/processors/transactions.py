"""Transactions: beginning them, deciding them, checks, giving up.

Each of these is one write: an event and the records that belong to it. It is decided in the
transaction's turn, upon the state that all events before it have made; so the first decision wins,
the same again is answered the same, and the opposite is told who was first. Who comes while a write
is under way waits for it.

A committed message is stored where it belongs in the same write as the decision, so no crash makes
one of them without the other: it is there once, or the transaction is still pending.

Who begins or decides is called back and nobody waits, as for sending: the two requests of a
transaction should cost no more than two sends.

Source: RocketMQ 5.3, ``SendMessageProcessor.handleTransaction``, ``EndTransactionProcessor``. There
a second commit stores a second message, and one that was rolled back can be committed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from eruca.contract.errors import (
    CheckOutOfTurnError,
    ErucaError,
    OtherProducerGroupError,
    OverloadedError,
    TooLargeError,
    TopicNotFoundError,
    TransactionIdInUseError,
    TransactionNotFoundError,
    ValidationError,
)
from eruca.contract.messages import NewMessage
from eruca.contract.names import broker_group_fault
from eruca.contract.records import Host, decode_record
from eruca.contract.transaction_events import (
    Outcome,
    TransactionBegun,
    TransactionChecked,
    TransactionDecided,
    TransactionEvent,
    TransactionParked,
)
from eruca.contract.transactions import (
    TRANSACTION_ID_PATTERN,
    CheckGrant,
    CheckRequest,
    CommittedPlace,
    Decide,
    DecidedBy,
    DecisionReceipt,
    ExpireRequest,
    NewTransaction,
    TransactionReceipt,
)
from eruca_broker.core.batch import Batch, batch_of_records
from eruca_broker.core.half_messages import (
    HALF_PLACE,
    OP_PLACE,
    PARKED_PLACE,
    committed,
    delay_properties,
    half_message,
    op_message,
    parked,
    queue_offset_of,
    wait_of,
)
from eruca_broker.core.new_messages import body_bytes
from eruca_broker.core.scheduled import Destination, PropertiesTooLargeError, Wait
from eruca_broker.core.times import moment, ms_not_before, rfc3339
from eruca_broker.core.transactions import LiveTransaction
from eruca_broker.processors.scheduled import Scheduled
from eruca_broker.processors.send_message import Draft, Sender
from eruca_broker.processors.transaction_decisions import (
    Decision,
    decision_of,
    decision_of_parked,
    place_of,
    receipt_of,
)
from eruca_broker.processors.transaction_log import TransactionLog
from eruca_broker.processors.turns import Turns
from eruca_broker.store.appended import Appended
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.writer import renewed
from eruca_chassis.clock import Clock

_RETRY_AFTER_SECONDS: Final = 5.0
_POINTER: Final = "/body/message"
_SOUND_ID: Final = re.compile(TRANSACTION_ID_PATTERN).fullmatch

Begun: TypeAlias = Callable[[TransactionReceipt | Exception], None]
Decided: TypeAlias = Callable[[DecisionReceipt | Exception], None]
Checked: TypeAlias = Callable[[CheckGrant | Exception], None]
_Outcome: TypeAlias = list[Appended] | Exception


@dataclass(slots=True)
class TransactionCounts:
    """What has become of transactions since the start."""

    begun: int = 0
    decided: Counter[tuple[Outcome, DecidedBy]] = field(default_factory=Counter)
    checks: int = 0
    repeated: int = 0  # requests for what had been done before
    conflicts: int = 0  # … for the opposite of what had been decided


class Transactions:
    """The transactions of this broker."""

    def __init__(
        self,
        store: MessageStore,
        sender: Sender,
        scheduled: Scheduled,
        log: TransactionLog,
        *,
        broker_name: str,
        count_max: int,
        store_host: Host,
        clock: Clock,
    ) -> None:
        self.counts = TransactionCounts()
        self.turns = Turns()
        self.count_max = count_max
        self._store = store
        self._sender = sender
        self._scheduled = scheduled
        self._log = log
        self._broker_name = broker_name
        self._store_host = store_host
        self._clock = clock
        self._beginning = 0  # on their way into the log

    def admit(self) -> None:
        """Raise what every write would now, as far as it is known without the body."""
        if self._store.refusal is not None:
            raise renewed(self._store.refusal)

    # --- Beginning --------------------------------------------------------------------------------

    def begin(self, request: NewTransaction, born_host: Host, done: Begun) -> None:
        """Store a half message, and tell *done* once it is as durable as configured.

        Raises:
            ValidationError: The message, its id or the group's name is not allowed.
            TooLargeError: The message exceeds a limit.
            TransactionIdInUseError: A transaction of this id has another message.
            AlreadyDecidedError: The transaction of this id is over.
            OverloadedError: As many wait as may.
        """
        _check_group_name(request.producer_group)
        message_id = request.message.message_id
        if message_id is not None:
            _check_id(message_id)
            if self.turns.is_taken(message_id):
                again = partial(self.begin, request, born_host, done)
                self.turns.wait(message_id, again, done)
                return
            if (known := self._begun_before(message_id, request)) is not None:
                self.counts.repeated += 1
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
            begun_at=self._clock.now_ms(),
            immunity_ms=None if immunity is None else round(immunity * 1000),
            group_size=len(half),
        )
        self.turns.take(transaction_id)
        self._beginning += 1
        settle = partial(self._begun, event, done)
        append = partial(self._append, event, [batch_of_records(*HALF_PLACE, [half])], settle)
        try:
            self._sender.once_there(draft.topic, append, settle)
        except Exception:
            self._beginning -= 1
            self.turns.give(transaction_id)
            raise

    def _draft(self, request: NewTransaction, born_host: Host) -> Draft:
        while True:
            draft = self._sender.draft(
                request.topic, request.queue_id, [request.message], [_POINTER], born_host
            )
            [transaction_id] = draft.unique_ids
            if not self.turns.is_taken(transaction_id) and (
                self._store.state.transactions.get(transaction_id) is None
            ):
                return draft
            # A client has used an id that this broker would have made: take the next.

    def _half_message(self, request: NewTransaction, draft: Draft) -> bytes:
        [record] = draft.records
        try:
            return half_message(
                record,
                draft.destination,
                transaction_id=draft.unique_ids[0],
                producer_group=request.producer_group,
                immunity_seconds=request.check_immunity_seconds,
                delay=None if draft.waits is None else _delay_of(request.message),
            )
        except PropertiesTooLargeError as error:
            raise TooLargeError(f"{_POINTER}: {error}") from error

    def _begun(self, event: TransactionBegun, done: Begun, outcome: _Outcome) -> None:
        self._beginning -= 1
        if isinstance(outcome, Exception):
            done(outcome)
        else:
            self.counts.begun += 1
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
                    durability=self._store.durability,
                )
            )
        self.turns.give(event.transaction_id)

    def _begun_before(
        self, transaction_id: str, request: NewTransaction
    ) -> TransactionReceipt | None:
        live = self._store.state.transactions.get(transaction_id)
        if live is None:
            if (ended := self._log.ended(transaction_id)) is not None:
                raise self._conflict(decision_of(ended.event), "begun again")
            return None
        if live.parked_at is not None:
            raise self._conflict(self._parked_by(live), "begun again")
        half, half_offset = self._log.message_of(live)
        body = body_bytes(request.message.body, _POINTER)
        if (live.producer_group, live.topic) != (
            request.producer_group,
            request.topic,
        ) or decode_record(half).body != body:
            raise TransactionIdInUseError(
                f"transaction {transaction_id!r} of producer group {live.producer_group!r} was "
                f"begun with another message for topic {live.topic!r}"
            )
        return TransactionReceipt(
            transaction_id=transaction_id,
            broker_name=self._broker_name,
            topic=live.topic,
            queue_id=live.queue_id,
            half_queue_offset=queue_offset_of(half),
            half_log_offset=half_offset,
            begun_at=rfc3339(live.begun_at),
            durability=self._store.durability,
            repeated=True,
        )

    def _check_room(self) -> None:
        live = self._store.state.transactions
        if len(live) + self._beginning >= self.count_max:
            raise OverloadedError(
                f"transactions_max is reached: of {self.count_max} transactions "
                f"{live.pending_count + self._beginning} are pending and {live.parked_count} "
                "parked",
                fix="decide pending transactions and clear parked ones (eruca txn list), then "
                "repeat; or raise ERUCA_BROKER_TRANSACTIONS_MAX",
                retry_after_seconds=_RETRY_AFTER_SECONDS,
            )

    # --- Deciding ---------------------------------------------------------------------------------

    def decide(self, transaction_id: str, outcome: Outcome, request: Decide, done: Decided) -> None:
        """Commit or roll back, and tell *done* once it is as durable as configured.

        Raises:
            ValidationError: The request lacks what its kind must say.
            TransactionNotFoundError: There is none of this id, as far as the log remembers.
            AlreadyDecidedError: It was decided otherwise.
            OtherProducerGroupError: It was begun by another producer group.
            CheckOutOfTurnError: It answers a check that nobody has sent.
            TopicNotFoundError: The topic it would be committed to is gone; it stays pending.
        """
        _check_decide(request)
        if self.turns.is_taken(transaction_id):
            again = partial(self.decide, transaction_id, outcome, request, done)
            self.turns.wait(transaction_id, again, done)
            return
        live = self._store.state.transactions.get(transaction_id)
        if live is None:
            done(self._decided_before(transaction_id, outcome, request))
            return
        _check_owner(transaction_id, live.producer_group, request)
        if live.parked_at is not None and request.by != "operator":
            done(self._parked_before(live, outcome))
            return
        if request.check_number is not None and request.check_number > live.checks:
            raise CheckOutOfTurnError(
                f"transaction {transaction_id!r} has been checked {live.checks} times; there was "
                f"no check {request.check_number}"
            )
        self._decide(live, outcome, request, done)

    def _decide(
        self, live: LiveTransaction, outcome: Outcome, request: Decide, done: Decided
    ) -> None:
        half, half_offset = self._log.message_of(live)
        now_ms = self._clock.now_ms()
        batches: list[Batch] = []
        wait: Wait | None = None
        destination = Destination(live.topic, live.queue_id)
        if outcome == "commit":
            destination = self._destination(live)
            if (wait := wait_of(half, now_ms)) is not None:
                self._scheduled.check_room(1)
            final = committed(half, destination, half_offset, wait)
            place = destination if wait is None else wait.place
            batches.append(batch_of_records(*place, [final]))
        if live.parked_at is None:
            batches.append(self._op_batch(half, now_ms))
        event = TransactionDecided(
            live.transaction_id,
            outcome,
            request.by,
            decided_at=now_ms,
            producer_group=live.producer_group,
            topic=live.topic,
            queue_id=live.queue_id,
            begun_at=live.begun_at,
            checks=live.checks,
            group_size=sum(batch.size for batch in batches),
            reason=request.reason,
            check_number=request.check_number,
            was_parked=live.parked_at is not None,
        )
        settle = partial(self._decided, event, destination, wait, done)
        self._write(event, batches, settle)

    def _decided(
        self,
        event: TransactionDecided,
        destination: Destination,
        wait: Wait | None,
        done: Decided,
        outcome: _Outcome,
    ) -> None:
        if isinstance(outcome, Exception):
            done(outcome)
        else:
            self.counts.decided[event.outcome, event.by] += 1
            self._log.note_end(event.transaction_id, outcome[0].log_offset)
            message = None
            if event.outcome == "commit":
                final = outcome[1]
                message = CommittedPlace(
                    topic=destination.topic,
                    queue_id=destination.queue_id,
                    queue_offset=final.queue_offset if wait is None else None,
                    log_offset=final.log_offset,
                    deliver_at=None
                    if wait is None
                    else rfc3339(wait.time_ms(final.store_timestamp)),
                )
            done(receipt_of(decision_of(event), durability=self._store.durability, message=message))
        self.turns.give(event.transaction_id)

    def _decided_before(
        self, transaction_id: str, outcome: Outcome, request: Decide
    ) -> DecisionReceipt:
        ended = self._log.ended(transaction_id)
        if ended is None:
            raise _not_found(transaction_id)
        _check_owner(transaction_id, ended.event.producer_group, request)
        decision = decision_of(ended.event)
        if decision.outcome != outcome:
            raise self._conflict(decision, _PAST[outcome])
        self.counts.repeated += 1
        return receipt_of(
            decision,
            durability=self._store.durability,
            message=place_of(self._store, self._log, ended),
            repeated=True,
        )

    def _parked_before(self, live: LiveTransaction, outcome: Outcome) -> DecisionReceipt:
        decision = self._parked_by(live)
        if outcome != "rollback":
            raise self._conflict(decision, _PAST[outcome])
        self.counts.repeated += 1
        return receipt_of(decision, durability=self._store.durability, repeated=True)

    def _destination(self, live: LiveTransaction) -> Destination:
        topic = self._store.state.topics.get(live.topic)
        if topic is None or self._store.is_leaving(live.topic):
            raise TopicNotFoundError(
                f"transaction {live.transaction_id!r} cannot be committed: topic {live.topic!r} "
                "has been deleted",
                fix="create the topic again and repeat, or roll back",
            )
        # The topic may have fewer queues by now, of which each is read.
        return Destination(live.topic, live.queue_id % topic.write_queue_count)

    # --- Checks -----------------------------------------------------------------------------------

    def check(self, transaction_id: str, request: CheckRequest, done: Checked) -> None:
        """Grant a check, and tell *done* once that is as durable as configured.

        Raises:
            TransactionNotFoundError: There is none of this id, as far as the log remembers.
            AlreadyDecidedError: It needs no check any more.
            CheckOutOfTurnError: It is another check's turn, or too early for one.
        """
        if self.turns.is_taken(transaction_id):
            again = partial(self.check, transaction_id, request, done)
            self.turns.wait(transaction_id, again, done)
            return
        live, now_ms = self._pending(transaction_id, "checked"), self._clock.now_ms()
        if request.number != live.checks + 1:
            raise CheckOutOfTurnError(
                f"transaction {transaction_id!r} has been checked {live.checks} times; the next "
                f"check is number {live.checks + 1}, not {request.number}"
            )
        _check_immunity(live, now_ms)
        event = TransactionChecked(
            transaction_id, request.number, request.checker, checked_at=now_ms
        )
        self._write(event, [], partial(self._checked, event, done))

    def _checked(self, event: TransactionChecked, done: Checked, outcome: _Outcome) -> None:
        if isinstance(outcome, Exception):
            done(outcome)
        else:
            self.counts.checks += 1
            done(
                CheckGrant(
                    transaction_id=event.transaction_id,
                    number=event.number,
                    checked_at=moment(event.checked_at),
                )
            )
        self.turns.give(event.transaction_id)

    def expire(self, transaction_id: str, request: ExpireRequest, done: Decided) -> None:
        """Roll back and park, and tell *done* once that is as durable as configured.

        Raises:
            TransactionNotFoundError: There is none of this id, as far as the log remembers.
            AlreadyDecidedError: It was decided.
            CheckOutOfTurnError: It has been checked another number of times.
        """
        if self.turns.is_taken(transaction_id):
            again = partial(self.expire, transaction_id, request, done)
            self.turns.wait(transaction_id, again, done)
            return
        known = self._store.state.transactions.get(transaction_id)
        if known is not None and known.parked_at is not None:
            done(self._parked_before(known, "rollback"))
            return
        live, now_ms = self._pending(transaction_id, "given up"), self._clock.now_ms()
        if request.checks != live.checks:
            raise CheckOutOfTurnError(
                f"transaction {transaction_id!r} has been checked {live.checks} times, not "
                f"{request.checks}"
            )
        _check_immunity(live, now_ms)
        half, _ = self._log.message_of(live)
        batches = [
            batch_of_records(*PARKED_PLACE, [parked(half, live.checks)]),
            self._op_batch(half, now_ms),
        ]
        event = TransactionParked(
            transaction_id,
            live.checks,
            request.checker,
            parked_at=now_ms,
            group_size=sum(batch.size for batch in batches),
            reason=request.reason,
        )
        self._write(event, batches, partial(self._parked, event, done))

    def _parked(self, event: TransactionParked, done: Decided, outcome: _Outcome) -> None:
        if isinstance(outcome, Exception):
            done(outcome)
        else:
            self.counts.decided["rollback", "limit"] += 1
            decision = Decision(
                event.transaction_id, "rollback", "limit", event.parked_at, event.reason
            )
            done(receipt_of(decision, durability=self._store.durability))
        self.turns.give(event.transaction_id)

    # --- Inside -----------------------------------------------------------------------------------

    def _pending(self, transaction_id: str, wanted: str) -> LiveTransaction:
        live = self._store.state.transactions.get(transaction_id)
        if live is None:
            if (ended := self._log.ended(transaction_id)) is None:
                raise _not_found(transaction_id)
            raise self._conflict(decision_of(ended.event), wanted)
        if live.parked_at is not None:
            raise self._conflict(self._parked_by(live), wanted)
        return live

    def _parked_by(self, live: LiveTransaction) -> Decision:
        return decision_of_parked(live, self._log.parked(live))

    def _conflict(self, decision: Decision, wanted: str) -> ErucaError:
        self.counts.conflicts += 1
        return decision.conflict(wanted)

    def _op_batch(self, half: memoryview, now_ms: int) -> Batch:
        op = op_message(half, now_ms=now_ms, host=self._store_host)
        return batch_of_records(*OP_PLACE, [op])

    def _write(
        self,
        event: TransactionEvent,
        batches: Sequence[Batch],
        settle: Callable[[_Outcome], None],
    ) -> None:
        """Append in the transaction's turn, which *settle* ends."""
        self.turns.take(event.transaction_id)
        try:
            self._append(event, batches, settle)
        except Exception:
            self.turns.give(event.transaction_id)
            raise

    def _append(
        self,
        event: TransactionEvent,
        batches: Sequence[Batch],
        settle: Callable[[_Outcome], None],
    ) -> None:
        self._store.append_group_then(batches, None, settle, head=event)


_PAST: Final = {"commit": "committed", "rollback": "rolled back"}


def _delay_of(message: NewMessage) -> dict[str, str]:
    seconds, deliver_at = message.delay_seconds, message.deliver_at
    return delay_properties(
        level=message.delay_level,
        delay_ms=None if seconds is None else math.ceil(seconds * 1000),
        deliver_at_ms=None if deliver_at is None else ms_not_before(deliver_at),
    )


def _check_immunity(live: LiveTransaction, now_ms: int) -> None:
    not_before = live.begun_at + (live.immunity_ms or 0)
    if now_ms < not_before:
        raise CheckOutOfTurnError(
            f"transaction {live.transaction_id!r} asked for no check before {rfc3339(not_before)}"
        )


def _check_owner(transaction_id: str, producer_group: str, request: Decide) -> None:
    if request.producer_group not in (None, producer_group):
        raise OtherProducerGroupError(
            f"transaction {transaction_id!r} was begun by producer group {producer_group!r}, not "
            f"{request.producer_group!r}"
        )


def _check_decide(request: Decide) -> None:
    if request.by == "operator":
        if request.reason is None:
            raise _fault("/body/reason", "an operator gives a reason")
    elif request.producer_group is None:
        raise _fault("/body/producer_group", "only an operator may leave it out")
    if request.check_number is not None and request.by != "check":
        raise _fault("/body/check_number", 'it goes with by = "check"')


def _check_group_name(name: str) -> None:
    if (fault := broker_group_fault(name)) is not None:
        raise _fault("/body/producer_group", f"not a group's name: {fault.value.replace('_', ' ')}")


def _check_id(message_id: str) -> None:
    if not _SOUND_ID(message_id) or message_id in {".", ".."}:
        raise _fault(
            f"{_POINTER}/message_id",
            "as a transaction's id it stands in paths: no blank, no /, no control character, and "
            "no . alone",
        )


def _not_found(transaction_id: str) -> TransactionNotFoundError:
    return TransactionNotFoundError(
        f"no transaction {transaction_id!r} was begun at this broker, as far as its log remembers"
    )


def _fault(pointer: str, detail: str) -> ValidationError:
    return ValidationError(f"{pointer}: {detail}", errors=[{"pointer": pointer, "detail": detail}])
