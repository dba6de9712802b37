"""The broker, put together: the only place that builds and wires."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any, Final

import structlog

from eruca.contract.errors import UnavailableError
from eruca.contract.limits import QUEUE_COUNT_MAX
from eruca.contract.records import Host
from eruca_broker.addresses import store_host_of, urls_of
from eruca_broker.api import (
    dead_letters,
    deliveries,
    find,
    group_offsets,
    groups,
    log,
    members,
    offsets,
    queue_locks,
    retries,
    scheduled,
    status,
    topics,
    transactions,
)
from eruca_broker.api.delivery_routes import DeliveryRoutes
from eruca_broker.api.dependencies import Broker
from eruca_broker.api.hot import HotHandlers, shadow_router
from eruca_broker.api.hot_openapi import add_hot_operations
from eruca_broker.api.metrics import BrokerMetrics
from eruca_broker.api.pull import PullRoutes
from eruca_broker.api.send import SendRoutes
from eruca_broker.api.transaction_routes import TransactionRoutes
from eruca_broker.core.budget import Budget
from eruca_broker.core.rendering import host_text
from eruca_broker.core.retention import RetentionRules
from eruca_broker.loops.registration import Registrant, Registration
from eruca_broker.loops.sessions import session_loop
from eruca_broker.loops.timers import TimerLoop
from eruca_broker.loops.upkeep import Upkeep
from eruca_broker.processors.dead_letters import DeadLetters
from eruca_broker.processors.deliveries.deliveries import Deliveries
from eruca_broker.processors.deliveries.leasing import LeaseLimits
from eruca_broker.processors.find_messages import Finder
from eruca_broker.processors.group_lags import GroupLags
from eruca_broker.processors.group_offsets import PositionsOfGroups
from eruca_broker.processors.group_work import GroupWork
from eruca_broker.processors.groups import Groups
from eruca_broker.processors.held_requests import HeldRequests
from eruca_broker.processors.idempotent_send import IdempotentSender
from eruca_broker.processors.log_feed import LogFeed
from eruca_broker.processors.members import Members
from eruca_broker.processors.offsets import Offsets
from eruca_broker.processors.pull_message import Puller, examine
from eruca_broker.processors.queue_locks import QueueLocks
from eruca_broker.processors.retries import Retries
from eruca_broker.processors.scheduled import Scheduled
from eruca_broker.processors.send_message import Sender
from eruca_broker.processors.status import Identity
from eruca_broker.processors.timers import Timers
from eruca_broker.processors.topics import Topics, topic_config
from eruca_broker.processors.transactions.carrying import TransactionCarrier
from eruca_broker.processors.transactions.log import TransactionLog
from eruca_broker.processors.transactions.transactions import Transactions
from eruca_broker.processors.transactions.views import TransactionViews
from eruca_broker.settings import BrokerSettings, split_hours
from eruca_broker.store.commit_log import CorruptLogError
from eruca_broker.store.config_snapshots import UnreadableConfigError
from eruca_broker.store.directory_lock import StoreLockedError
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.scrub import Scrub
from eruca_broker.store.settings import StoreSettings
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock, SystemClock
from eruca_chassis.held import HeldPlaces
from eruca_chassis.openapi import finish
from eruca_chassis.readiness import GATED_PREFIX
from eruca_chassis.settings import split_urls
from eruca_chassis.start import StartError

_DESCRIPTION: Final = """
A broker stores messages in queues and hands them out from any offset on. It has one append-only
log; topics' queues, the key index and groups' offsets are projections of it.

A 2xx answer to a send means that the message is in the log, as durable as the answer's `durability`
says. Queues' offsets are 0, 1, 2 … without gaps. Offsets are JSON integers of up to 64 bits, times
RFC 3339 in UTC. Every refusal is an `application/problem+json` document whose `code` is stable.

Sending and pulling also speak `application/vnd.eruca.records`: the log's own records in batches,
which is what the SDK uses.
"""
_TAGS: Final = (
    {"name": "messages", "description": "Send, pull and find messages"},
    {"name": "topics", "description": "Create, change and delete topics"},
    {"name": "offsets", "description": "Where queues begin and end, and where groups stand"},
    {"name": "groups", "description": "Consumer groups: settings, members, locks of queues"},
    {"name": "retries", "description": "What was not consumed is delivered again"},
    {"name": "deliveries", "description": "Consuming with nothing but HTTP, message by message"},
    {"name": "dead letters", "description": "What groups have given up on"},
    {"name": "delayed messages", "description": "What waits for its delivery"},
    {"name": "transactions", "description": "Messages that are stored first and decided later"},
    {"name": "log", "description": "The log itself, for replicas and projections"},
    {"name": "status", "description": "Who the broker is and how it is doing"},
)
_ROUTERS: Final = (  # in the document's order
    topics.router,
    find.router,
    offsets.router,
    groups.router,
    members.router,
    queue_locks.router,
    group_offsets.router,
    log.router,
    retries.router,
    dead_letters.router,
    deliveries.router,
    scheduled.router,
    transactions.router,
    status.router,
)
_SHOWN_MAX: Final = 10  # topics that a line of the log names
_VERSION_SHIFT: Final = 20  # bits for the changes of topics in one run of the process

_log = structlog.get_logger()


class BrokerApp(ServiceApp):
    """The broker's application, with the hot routes in its document."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            document = super().openapi()
            add_hot_operations(document)
            finish(document, gated_prefix=GATED_PREFIX)
        return super().openapi()


def create_app(settings: BrokerSettings, clock: Clock | None = None) -> BrokerApp:
    """Return the broker's application; its lifespan opens the store and closes it."""
    clock = clock or SystemClock()
    handlers = HotHandlers()

    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        port = app.address[1] if app.address is not None else settings.port
        store_host = store_host_of(settings, port)
        urls = urls_of(settings, store_host)
        store = await _open_store(settings, store_host, clock)
        registration: Registration | None = None

        def topics_changed() -> None:
            if registration is not None:
                registration.topics_changed()

        broker = _wire(settings, store, store_host, clock, topics_changed)
        handlers.open(
            SendRoutes(broker.sender, broker.idempotent_sender, broker.in_flight),
            PullRoutes(broker.puller, broker.in_flight),
            TransactionRoutes(broker.transactions, broker.in_flight),
            DeliveryRoutes(
                broker.deliveries, broker.in_flight, body_size_max=settings.body_size_max
            ),
        )
        app.state.broker = broker
        scrub = Scrub(store, hours=settings.scrub_hours) if settings.scrub_hours else None
        metrics = BrokerMetrics(broker, scrub)
        app.registry.register(metrics)
        app.metrics_hooks.append(broker.lags.measure)
        upkeep = Upkeep(
            store,
            _retention(settings),
            carry_forward=partial(_carry_forward, broker),
            lags=broker.lags,
            scrub=scrub,
        )
        timer_loop = TimerLoop(store, broker.timers, clock)
        registration = _registration(settings, broker, urls, clock)
        app.stop_hooks += [
            broker.held.close,
            broker.group_work.watchers.release_all,
            registration.begin_stop,
        ]
        _log.info(
            "broker open",
            broker=settings.name,
            url=urls["default"],
            store=str(settings.store_dir),
            flush_mode=settings.flush_mode.value,
            log_min_offset=store.log_min_offset,
            log_max_offset=store.log_max_offset,
            topics=len(store.state.topics),
        )
        # The name servers hear last of a broker that starts, and first of one that stops.
        loops = (upkeep, timer_loop, session_loop(broker.members), registration)
        await broker.transaction_carrier.carry_imported()
        for loop in loops:
            loop.start()
        app.readiness.ready()
        try:
            yield
        finally:
            app.begin_stop()
            for loop in reversed(loops):
                await loop.stop()
            app.metrics_hooks.remove(broker.lags.measure)
            await store.close()
            app.registry.unregister(metrics)

    return BrokerApp(
        title="Eruca broker",
        summary="One commit log, and the queues, index and offsets made from it",
        description=_DESCRIPTION,
        version=version("eruca-broker"),
        tags=_TAGS,
        routers=[*_ROUTERS, shadow_router(_ROUTERS)],
        lifespan=lifespan,
        hot=handlers.routes,
        body_size_max=settings.body_size_max,
        explorer_origins=settings.explorer_origins,
    )


async def _open_store(settings: BrokerSettings, store_host: Host, clock: Clock) -> MessageStore:
    store_settings = StoreSettings(
        store_host=store_host,
        flush_mode=settings.flush_mode,
        segment_size=settings.segment_size,
        queue_file_entries=settings.queue_file_entries,
        index_slots=settings.index_slots,
        index_entries=settings.index_entries,
        is_log_warmed=settings.warm_segments,
        is_damage_cut=settings.cut_damage,
    )
    try:
        return await MessageStore.open(settings.store_dir, store_settings, clock)
    except (StoreLockedError, CorruptLogError, UnreadableConfigError, UnavailableError) as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise StartError(
            f"the store in {settings.store_dir} cannot be opened: {error.strerror or error}; "
            "set ERUCA_BROKER_STORE_DIR to a directory that can be written to"
        ) from error


def _retention(settings: BrokerSettings) -> RetentionRules:
    return RetentionRules(
        reserved_hours=settings.retention_hours,
        delete_hours=split_hours(settings.delete_hours),
        disk_high=settings.disk_high,
        disk_forced=settings.disk_forced,
        disk_refuse=settings.disk_refuse,
    )


def _wire(
    settings: BrokerSettings,
    store: MessageStore,
    store_host: Host,
    clock: Clock,
    topics_changed: Callable[[], None],
) -> Broker:
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

    known = Topics(
        store,
        auto_create=settings.auto_create_topics,
        count_max=settings.topics_max,
        on_change=topics_changed,
        on_delete=topic_gone,
    )
    known_groups = Groups(
        work, known, auto_create=settings.auto_create_groups, count_max=settings.groups_max
    )
    known_members = Members(work, known, known_groups, count_max=settings.members_max)
    locks = QueueLocks(work, known, known_groups, known_members)
    known_deliveries = Deliveries(
        work,
        known,
        known_groups,
        known_members,
        broker_name=settings.name,
        limits=LeaseLimits(settings.unfinished_max, settings.unfinished_total_max),
    )

    def arrived(queues: Sequence[tuple[str, int]]) -> None:
        held.arrived(queues)
        known_deliveries.waiters.arrived(queues)

    store.on_arrival = arrived
    scheduled = Scheduled(
        store,
        delay_max_seconds=settings.delay_max_seconds,
        timers_max=settings.timers_max,
    )
    sender = Sender(
        store,
        known,
        scheduled,
        broker_name=settings.name,
        store_host=store_host,
        clock=clock,
    )
    transaction_log = TransactionLog(store)
    known_transactions = Transactions(
        store,
        sender,
        scheduled,
        transaction_log,
        broker_name=settings.name,
        count_max=settings.transactions_max,
        store_host=store_host,
        clock=clock,
    )
    return Broker(
        identity=Identity(
            cluster=settings.cluster,
            broker_name=settings.name,
            broker_id=settings.id,
            store_host=host_text(store_host),
            version=version("eruca-broker"),
            started_at=datetime.now(UTC),
            flush_mode=settings.flush_mode.value,
        ),
        clock=clock,
        store=store,
        in_flight=Budget("bytes_in_flight_max", settings.bytes_in_flight_max),
        held=held,
        topics=known,
        sender=sender,
        idempotent_sender=IdempotentSender(
            store,
            sender,
            window_seconds=settings.idempotency_window_seconds,
            broker_name=settings.name,
            clock=clock,
        ),
        scheduled=scheduled,
        retries=Retries(work, known, known_groups, locks, scheduled),
        dead_letters=DeadLetters(work, known_groups),
        deliveries=known_deliveries,
        timers=Timers(store, clock),
        transactions=known_transactions,
        transaction_views=TransactionViews(store, transaction_log, broker_name=settings.name),
        transaction_carrier=TransactionCarrier(
            store, transaction_log, known_transactions.turns, store_host=store_host, clock=clock
        ),
        puller=Puller(store, known, held),
        offsets=Offsets(store, known),
        finder=Finder(store, known),
        log_feed=LogFeed(store, held),
        groups=known_groups,
        members=known_members,
        locks=locks,
        positions=PositionsOfGroups(work, known, known_groups, locks),
        lags=GroupLags(store),
        group_work=work,
    )


async def _carry_forward(broker: Broker, log_offset: int) -> None:
    """Store again what waits in the log before *log_offset*, before that is deleted."""
    await broker.timers.carry_forward(log_offset)
    await broker.transaction_carrier.carry_forward(log_offset)


def _registration(
    settings: BrokerSettings, broker: Broker, urls: dict[str, str], clock: Clock
) -> Registration:
    state = broker.store.state
    users_topics = [topic for topic in state.topics.values() if not topic.is_system]
    if too_wide := [topic.name for topic in users_topics if not topic.is_routable]:
        _log.warning(
            "imported topics have too many queues and are in no route",
            topics=too_wide[:_SHOWN_MAX],
            count=len(too_wide),
            queue_count_max=QUEUE_COUNT_MAX,
        )
    first_version = clock.now_ms() << _VERSION_SHIFT  # grows across restarts, too
    return Registration(
        Registrant(
            cluster=settings.cluster,
            broker_name=settings.name,
            broker_id=settings.id,
            urls=urls,
            store_host=broker.identity.store_host,
            heartbeat_seconds=settings.heartbeat_seconds,
            registration_seconds=settings.registration_seconds,
            expiry_seconds=settings.expiry_seconds,
        ),
        split_urls(settings.namesrv_urls),
        topics=lambda: [topic_config(t) for t in state.topics.values() if t.is_routable],
        version=lambda: first_version + state.version,
        clock=clock,
    )
