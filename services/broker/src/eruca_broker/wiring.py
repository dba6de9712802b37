"""The broker's processors, connected: the only place that says which uses which.

From the store upwards: waiting messages, topics and groups, delivery, sending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from eruca.contract.limits import JSON_BODY_SIZE_MAX, PULL_SIZE_MAX
from eruca.contract.records import Host
from eruca_broker.api.dependencies import Broker
from eruca_broker.core.records.rendering import host_text
from eruca_broker.processors.dead_letters import DeadLetters
from eruca_broker.processors.deliveries.deliveries import Deliveries
from eruca_broker.processors.deliveries.leasing import LeaseLimits
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
from eruca_broker.processors.pull_message import Puller, examine
from eruca_broker.processors.retries import Retries
from eruca_broker.processors.scheduled import Scheduled
from eruca_broker.processors.send_message import Sender
from eruca_broker.processors.status import Identity
from eruca_broker.processors.timers import Timers
from eruca_broker.processors.topics import Topics
from eruca_broker.processors.transactions.carrying import TransactionCarrier
from eruca_broker.processors.transactions.log import TransactionLog
from eruca_broker.processors.transactions.transactions import Transactions
from eruca_broker.processors.transactions.views import TransactionViews
from eruca_broker.settings import BrokerSettings
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.budget import Budget, client_max_of
from eruca_chassis.clock import Clock
from eruca_chassis.held import HeldPlaces


def wire(
    settings: BrokerSettings,
    store: MessageStore,
    store_host: Host,
    clock: Clock,
    *,
    topics_changed: Callable[[], None],
    ordered_at: Callable[[str], Sequence[str]],
) -> Broker:
    """Return the parts that answer requests, over an open store.

    Args:
        settings: The broker's.
        store: An open store; it gets the callbacks for arrivals.
        store_host: The address in its records.
        clock: The application's.
        topics_changed: Called when topics differ from those that the name servers know.
        ordered_at: Returns the other brokers that have a topic as ordered.
    """
    held = HeldRequests(
        settings.held_requests_max, clock, lambda position: examine(store, position)
    )
    work = GroupWork.begin(
        store,
        clock,
        HeldPlaces(maximum=settings.held_group_requests_max, limit_name="held_group_requests_max"),
    )

    def topic_gone(topic: str) -> None:
        held.topic_gone(topic)
        work.watchers.wake_topic(topic)

    topics = Topics(
        store,
        auto_create=settings.auto_create_topics,
        count_max=settings.topics_max,
        on_change=topics_changed,
        on_delete=topic_gone,
        ordered_at=ordered_at,
    )
    groups = Groups(
        work, topics, auto_create=settings.auto_create_groups, count_max=settings.groups_max
    )
    members = Members(work, topics, groups, count_max=settings.members_max)
    locks = QueueLocks(work, topics, groups, members)
    deliveries = Deliveries(
        work,
        topics,
        groups,
        members,
        broker_name=settings.name,
        limits=LeaseLimits(settings.unfinished_max, settings.unfinished_total_max),
    )

    def arrived(queues: Sequence[tuple[str, int]]) -> None:
        held.arrived(queues)
        deliveries.waiters.arrived(queues)

    store.on_arrival = arrived
    scheduled = Scheduled(
        store,
        broker_name=settings.name,
        delay_seconds_max=settings.delay_seconds_max,
        timers_max=settings.timers_max,
    )
    sender = Sender(
        store,
        topics,
        scheduled,
        broker_name=settings.name,
        store_host=store_host,
        clock=clock,
    )
    transaction_log = TransactionLog(store)
    transactions = Transactions(
        store,
        sender,
        scheduled,
        transaction_log,
        broker_name=settings.name,
        count_max=settings.transactions_max,
        store_host=store_host,
        clock=clock,
    )
    started_at = datetime.now(UTC)
    return Broker(
        identity=Identity(
            cluster=settings.cluster,
            broker_name=settings.name,
            broker_id=settings.id,
            role=settings.role,
            store_host=host_text(store_host),
            version=version("eruca-broker"),
            started_at=started_at,
            flush_mode=settings.flush_mode.value,
        ),
        clock=clock,
        store=store,
        in_flight=_budget(settings, "bytes_in_flight_max", JSON_BODY_SIZE_MAX),
        consume_in_flight=_budget(settings, "consume_bytes_in_flight_max", PULL_SIZE_MAX),
        body_size_max=settings.body_size_max,
        held=held,
        topics=topics,
        sender=sender,
        idempotent_sender=IdempotentSender(
            store,
            sender,
            window_seconds=settings.idempotency_window_seconds,
            broker_name=settings.name,
            clock=clock,
        ),
        scheduled=scheduled,
        retries=Retries(work, topics, groups, locks, scheduled),
        dead_letters=DeadLetters(work, groups),
        deliveries=deliveries,
        timers=Timers(store, clock),
        transactions=transactions,
        transaction_views=TransactionViews(store, transaction_log, broker_name=settings.name),
        transaction_carrier=TransactionCarrier(
            store, transaction_log, transactions.turns, store_host=store_host, clock=clock
        ),
        puller=Puller(store, topics, held),
        offsets=Offsets(store, topics, started_at),
        finder=Finder(store, topics),
        log_feed=LogFeed(store, held),
        groups=groups,
        members=members,
        locks=locks,
        positions=PositionsOfGroups(work, topics, groups, locks),
        lags=GroupLags(store),
        group_work=work,
    )


def _budget(settings: BrokerSettings, name: str, largest: int) -> Budget:
    """Return the budget of the setting *name*; the largest request takes so much of it."""
    maximum: int = getattr(settings, name)
    return Budget(name, maximum, client_max=client_max_of(maximum, settings.client_share, largest))
