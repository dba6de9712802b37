"""Decide a transaction, by its producer, by the answer to a check, or by an operator.

A committed message is stored in its queue in the same write as the decision. So no crash leaves one
without the other: the message is stored once, or the transaction is still pending.

Source: RocketMQ 5.3, ``EndTransactionProcessor``. There a second commit stores a second message,
and a rolled-back one can be committed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from eruca.contract.errors import (
    CheckOutOfTurnError,
    OtherProducerGroupError,
    RecordNotFoundError,
    TopicNotFoundError,
)
from eruca.contract.transaction_events import Outcome, TransactionDecided
from eruca.contract.transactions import CommittedPlace, Decide, DecisionReceipt
from eruca_broker.core.batches.batch import Batch, batch_of_records
from eruca_broker.core.records.half_messages import committed, queue_offset_of, wait_of
from eruca_broker.core.records.scheduled import Destination, Wait
from eruca_broker.core.records.times import rfc3339
from eruca_broker.core.state.transactions import LiveTransaction
from eruca_broker.processors.scheduled import Scheduled
from eruca_broker.processors.transactions.decisions import decision_of, place_of, receipt_of
from eruca_broker.processors.transactions.log import told_whose
from eruca_broker.processors.transactions.writes import (
    PAST,
    TransactionWrites,
    WriteOutcome,
    body_fault,
    not_found,
)

Decided: TypeAlias = Callable[[DecisionReceipt | Exception], None]


class TransactionDeciding:
    """Commits and rolls back."""

    def __init__(self, writes: TransactionWrites, scheduled: Scheduled) -> None:
        self._writes = writes
        self._scheduled = scheduled

    def decide(self, transaction_id: str, outcome: Outcome, request: Decide, done: Decided) -> None:
        """Commit or roll back, and call *done* once it is as durable as configured.

        Raises:
            ValidationError: The request lacks a field that its kind requires.
            TransactionNotFoundError: There is none with this id in the log.
            AlreadyDecidedError: It was decided the opposite way.
            OtherProducerGroupError: Another producer group began it.
            CheckOutOfTurnError: It answers a check that was never sent.
            TopicNotFoundError: The topic of its commit was deleted; it stays pending.
            RecordNotFoundError: The message to commit is damaged; it stays pending.
        """
        _check_decide(request)
        if self._writes.turns.is_taken(transaction_id):
            again = partial(self.decide, transaction_id, outcome, request, done)
            self._writes.turns.wait(transaction_id, again, done)
            return
        live = self._writes.store.state.transactions.get(transaction_id)
        if live is None:
            done(self._decided_before(transaction_id, outcome, request))
            return
        _check_owner(transaction_id, live.producer_group, request)
        if live.parked_at is not None and request.by != "operator":
            done(self._writes.parked_before(live, outcome))
            return
        if request.check_number is not None and request.check_number > live.checks:
            raise CheckOutOfTurnError(
                f"transaction {transaction_id!r} has been checked {live.checks} times; there was "
                f"no check {request.check_number}"
            )
        with told_whose(live):
            self._decide(live, outcome, request, done)

    def _decide(
        self, live: LiveTransaction, outcome: Outcome, request: Decide, done: Decided
    ) -> None:
        now_ms = self._writes.clock.now_ms()
        batches: list[Batch] = []
        wait: Wait | None = None
        destination = Destination(live.topic, live.queue_id)
        half: memoryview | None = None
        try:
            half, half_offset = self._writes.log.message_of(live)
        except RecordNotFoundError:
            if outcome == "commit":
                raise
            # It is given up, so that its segment can be deleted.
        if half is not None and outcome == "commit":
            destination = self._destination(live)
            if (wait := wait_of(half, now_ms)) is not None:
                self._scheduled.check_room(1)
                wait = wait.beginning(now_ms, self._writes.store.last_store_timestamp)
            final = committed(half, destination, half_offset, wait)
            place = destination if wait is None else wait.place
            batches.append(batch_of_records(*place, [final]))
        if live.parked_at is None:
            known = self._writes.log.queued_at(live) if half is None else queue_offset_of(half)
            if known is not None:
                batches.append(self._writes.op_batch(known, now_ms))
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
        self._writes.write(event, batches, settle)

    def _decided(
        self,
        event: TransactionDecided,
        destination: Destination,
        wait: Wait | None,
        done: Decided,
        outcome: WriteOutcome,
    ) -> None:
        if isinstance(outcome, Exception):
            done(outcome)
        else:
            self._writes.counts.decided[event.outcome, event.by] += 1
            self._writes.log.note_end(event.transaction_id, outcome[0].log_offset)
            message = None
            if event.outcome == "commit":
                final = outcome[1]
                place = destination if wait is None else wait.place
                assert (final.batch.topic, final.batch.queue_id) == place, (
                    "the decision names another place"
                )
                message = CommittedPlace(
                    topic=destination.topic,
                    queue_id=destination.queue_id,
                    queue_offset=final.queue_offset if wait is None else None,
                    log_offset=final.log_offset,
                    deliver_at=None
                    if wait is None
                    else rfc3339(wait.time_ms(final.store_timestamp)),
                )
            done(
                receipt_of(
                    decision_of(event), durability=self._writes.store.durability, message=message
                )
            )
        self._writes.turns.give(event.transaction_id)

    def _decided_before(
        self, transaction_id: str, outcome: Outcome, request: Decide
    ) -> DecisionReceipt:
        ended = self._writes.log.ended(transaction_id)
        if ended is None:
            raise not_found(transaction_id)
        _check_owner(transaction_id, ended.event.producer_group, request)
        decision = decision_of(ended.event)
        if decision.outcome != outcome:
            raise self._writes.conflict(decision, PAST[outcome])
        self._writes.counts.repeated += 1
        return receipt_of(
            decision,
            durability=self._writes.store.durability,
            message=place_of(self._writes.log, ended),
            repeated=True,
        )

    def _destination(self, live: LiveTransaction) -> Destination:
        topic = self._writes.store.state.topics.get(live.topic)
        if topic is None or self._writes.store.is_leaving(live.topic):
            raise TopicNotFoundError(
                f"transaction {live.transaction_id!r} cannot be committed: topic {live.topic!r} "
                "has been deleted",
                fix="create the topic again and repeat, or roll back",
            )
        return Destination(live.topic, topic.queue_now(live.queue_id))


def _check_owner(transaction_id: str, producer_group: str, request: Decide) -> None:
    if request.producer_group not in (None, producer_group):
        raise OtherProducerGroupError(
            f"transaction {transaction_id!r} was begun by producer group {producer_group!r}, not "
            f"{request.producer_group!r}"
        )


def _check_decide(request: Decide) -> None:
    if request.by == "operator":
        if request.reason is None:
            raise body_fault("/body/reason", "an operator must give a reason")
    elif request.producer_group is None:
        raise body_fault("/body/producer_group", "only an operator may omit it")
    if request.check_number is not None and request.by != "check":
        raise body_fault("/body/check_number", 'it requires by = "check"')
