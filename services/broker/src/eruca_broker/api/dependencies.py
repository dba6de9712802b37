"""The parts that endpoints use: FastAPI's declare them by annotation, hot ones at creation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query, Request

from eruca_broker.processors.dead_letters import DeadLetters
from eruca_broker.processors.deliveries.deliveries import Deliveries
from eruca_broker.processors.find_messages import Finder
from eruca_broker.processors.groups.groups import Groups
from eruca_broker.processors.groups.lags import GroupLags
from eruca_broker.processors.groups.members import Members
from eruca_broker.processors.groups.offsets import PositionsOfGroups
from eruca_broker.processors.groups.queue_locks import QueueLocks
from eruca_broker.processors.groups.work import GroupWork
from eruca_broker.processors.held_requests import HeldRequests
from eruca_broker.processors.idempotent_send import IdempotentSender
from eruca_broker.processors.log_feed import LogFeed
from eruca_broker.processors.offsets import Offsets
from eruca_broker.processors.pull_message import Puller
from eruca_broker.processors.retries import Retries
from eruca_broker.processors.scheduled import Scheduled
from eruca_broker.processors.send_message import Sender
from eruca_broker.processors.status import Identity
from eruca_broker.processors.timers import Timers
from eruca_broker.processors.topics import Topics
from eruca_broker.processors.transactions.carrying import TransactionCarrier
from eruca_broker.processors.transactions.transactions import Transactions
from eruca_broker.processors.transactions.views import TransactionViews
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.budget import Budget
from eruca_chassis.clock import Clock


@dataclass(frozen=True, slots=True)
class Broker:
    """Everything that answers requests, connected over one open store."""

    identity: Identity
    clock: Clock
    store: MessageStore
    in_flight: Budget  # of senders
    consume_in_flight: Budget  # … and of consumers, whom senders must not lock out
    body_size_max: int  # bytes of a request that is not a batch
    held: HeldRequests
    topics: Topics
    sender: Sender
    idempotent_sender: IdempotentSender
    scheduled: Scheduled
    retries: Retries
    dead_letters: DeadLetters
    deliveries: Deliveries
    timers: Timers
    transactions: Transactions
    transaction_views: TransactionViews
    transaction_carrier: TransactionCarrier
    puller: Puller
    offsets: Offsets
    finder: Finder
    log_feed: LogFeed
    groups: Groups
    members: Members
    locks: QueueLocks
    positions: PositionsOfGroups
    lags: GroupLags
    group_work: GroupWork


async def _broker(request: Request) -> Broker:  # or FastAPI would call it in a thread
    broker: Broker = request.app.state.broker
    return broker


TheBroker = Annotated[Broker, Depends(_broker)]
IncludeSystem = Annotated[
    bool,
    Query(
        description="the topic may be one that the system keeps for itself, to be read and no "
        "more: `RMQ_SYS_TRANS_HALF_TOPIC` …"
    ),
]
