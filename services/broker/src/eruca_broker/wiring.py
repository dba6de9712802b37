"""The broker's composition: the only place that says which part uses which, and what starts when.

Read it from the top. :func:`wired` is the order of starting. Everything stops in the opposite
order, even if the start was not completed. Parts live in one of two ways:

- As long as the process: settings, budgets, the registration.
- As long as a role of the broker (:func:`working`): all parts that work with the store, made by
  :func:`compose`, and their loops. A broker without replicas has one role, the master's.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

import structlog

from eruca.contract.audit import AuditRecord, AuditReport
from eruca.contract.errors import NotMasterError
from eruca.contract.fields import MASTER_ID, BrokerRole
from eruca.contract.limits import JSON_BODY_SIZE_MAX, PULL_SIZE_MAX, QUEUE_COUNT_MAX
from eruca.contract.records import Host
from eruca.contract.topics import TopicConfig
from eruca.services.http import credentials_of, http1_transport
from eruca_access.audit.trail import REPORT_OPERATION
from eruca_access.reporting import Write, report_to, writing_audit
from eruca_broker.addresses import store_host_of, urls_of
from eruca_broker.api.metrics import BROKER_METRICS, ScrubMetrics, TierMetrics
from eruca_broker.core.log.retention import RetentionRules
from eruca_broker.core.records.rendering import host_text
from eruca_broker.core.replication.appointments import author_of
from eruca_broker.core.replication.broker_group import Change
from eruca_broker.core.replication.roles import Role
from eruca_broker.loops.name_gate import NameGate
from eruca_broker.loops.registration import ONLY_BROKER, Place, Registrant, Registration
from eruca_broker.loops.retention import FollowedRetention
from eruca_broker.loops.sessions import session_loop
from eruca_broker.loops.timers import TimerLoop
from eruca_broker.loops.upkeep import Upkeep
from eruca_broker.opening import LostRecordsStartError, open_store, open_tier
from eruca_broker.processors.audit import AuditLog
from eruca_broker.processors.budgets import ConsumeBudget, SendBudget
from eruca_broker.processors.dead_letters import DeadLetters
from eruca_broker.processors.deliveries.deliveries import Deliveries
from eruca_broker.processors.deliveries.leasing import LeaseLimits
from eruca_broker.processors.find_messages import Finder
from eruca_broker.processors.groups.consumption import SETTLE_SECONDS
from eruca_broker.processors.groups.groups import Groups
from eruca_broker.processors.groups.lags import GroupLags
from eruca_broker.processors.groups.members import Members
from eruca_broker.processors.groups.offsets import PositionsOfGroups
from eruca_broker.processors.groups.past import PastOfGroups
from eruca_broker.processors.groups.queue_locks import QueueLocks
from eruca_broker.processors.groups.work import GroupWork
from eruca_broker.processors.held_requests import HeldRequests
from eruca_broker.processors.idempotent_send import IdempotentSender
from eruca_broker.processors.log_feed import LogFeed
from eruca_broker.processors.offsets import Offsets
from eruca_broker.processors.pull_message import Puller, examine
from eruca_broker.processors.replication.absence import Absence
from eruca_broker.processors.replication.arbiter import Arbiter
from eruca_broker.processors.replication.candidacy import ReplicaFacts
from eruca_broker.processors.replication.copies import GroupCopies
from eruca_broker.processors.replication.door import RoleDoor
from eruca_broker.processors.replication.lost_records import may_give_up
from eruca_broker.processors.replication.peers import Peers
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.processors.replication.supervisor import Supervisor
from eruca_broker.processors.replication.switching import Switching
from eruca_broker.processors.retries import Retries
from eruca_broker.processors.scheduled import Scheduled
from eruca_broker.processors.send_message import Sender
from eruca_broker.processors.singles import Gathering
from eruca_broker.processors.status import Identity, Status
from eruca_broker.processors.timers import Timers
from eruca_broker.processors.topics import Topics, topic_config
from eruca_broker.processors.transactions.carrying import TransactionCarrier
from eruca_broker.processors.transactions.log import TransactionLog
from eruca_broker.processors.transactions.transactions import Transactions
from eruca_broker.processors.transactions.views import TransactionViews
from eruca_broker.settings import BrokerSettings, split_hours
from eruca_broker.store.identity import remember_row
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.scrub import Scrub
from eruca_broker.store.tiering.copying import TierCopies
from eruca_broker.store.tiering.scrub import TierScrub
from eruca_broker.store.tiering.tiering import Tiering, TierSettings
from eruca_chassis.admission.budget import Budget, client_max_of
from eruca_chassis.admission.held import HeldPlaces
from eruca_chassis.app import FILES_NEEDED, ServiceApp
from eruca_chassis.clock import Clock
from eruca_chassis.loops import BackgroundLoop
from eruca_chassis.routes.parts import Parts
from eruca_chassis.running.settings import split_urls
from eruca_chassis.versions import version_of

_SHOWN_MAX: Final = 10  # topics that one log line names
_VERSION_SHIFT: Final = 20  # bits for the changes of topics in one run of the process

_BudgetT = TypeVar("_BudgetT", bound=Budget)
_HookT = TypeVar("_HookT")

_log = structlog.get_logger()


class _Loop(Protocol):
    """A loop of a role."""

    def start(self) -> None: ...
    async def stop(self) -> None: ...


class Process(NamedTuple):
    """The parts that live as long as the broker's process."""

    app: ServiceApp
    settings: BrokerSettings
    clock: Clock
    store_host: Host
    urls: dict[str, str]
    senders: SendBudget
    consumers: ConsumeBudget


@asynccontextmanager
async def wired(app: ServiceApp, *, settings: BrokerSettings, clock: Clock) -> AsyncIterator[None]:
    """Run the broker for the block, and let *app* answer requests by its parts."""
    open_tier(settings)  # before anything else begins: it may be refused
    addresses = app.addresses or [("127.0.0.1", settings.port)]  # called in process
    process = Process(
        app,
        settings,
        clock,
        store_host_of(settings, addresses),
        urls_of(settings, addresses),
        _budget(SendBudget, settings, "bytes_in_flight_max", largest=JSON_BODY_SIZE_MAX),
        _budget(ConsumeBudget, settings, "consume_bytes_in_flight_max", largest=PULL_SIZE_MAX),
    )
    async with AsyncExitStack() as stack:
        if settings.is_replica:
            registration = await _begin_roles(process, stack)
        else:
            registration = await _begin_alone(process, stack)
        await stack.enter_async_context(writing_audit(app, await _audit_of(process, stack)))
        app.stop_hooks.append(registration.begin_stop)
        # A starting broker informs the name servers last, a stopping one first.
        registration.start()
        stack.push_async_callback(registration.stop)
        stack.callback(app.begin_stop)
        # Before a send is accepted whose message no consumer would see.
        await registration.first_outcomes()
        if registration.refusal is None or settings.is_replica:
            app.readiness.ready()
        yield


async def _audit_of(process: Process, stack: AsyncExitStack) -> Write:
    """Return the function that writes audit records: here, or at the group's master."""
    app = process.app
    transport = http1_transport(credentials_of(os.environ))
    stack.push_async_callback(transport.close)

    async def write(records: Sequence[AuditRecord]) -> None:
        door = app.readiness.door
        refusal = None if door is None else door.refusal(REPORT_OPERATION)
        if isinstance(refusal, NotMasterError) and refusal.redirect_url is not None:
            report = AuditReport(records=list(records))
            await report_to(transport, refusal.redirect_url, report)
        elif refusal is not None:
            raise refusal
        else:
            await app.parts[AuditLog].write(records)

    return write


async def _begin_alone(process: Process, stack: AsyncExitStack) -> Registration:
    """Begin the only role of a broker without replicas."""
    settings, clock = process.settings, process.clock
    store = await open_store(settings, process.store_host, clock, tracing=process.app.tracing)
    stack.push_async_callback(store.close)
    gate, first_version = NameGate(process.app.readiness), clock.now_ms() << _VERSION_SHIFT
    registration = _registration(
        process,
        topics=lambda: _routable(store),
        version=lambda: first_version + store.state.version,
        on_outcome=lambda: gate.judge(registration.refusal),
    )
    _warn_of_wide_topics(store)
    role = working(process, store, Replication(store, clock), None, registration)
    await stack.enter_async_context(role)
    return registration


async def _begin_roles(process: Process, stack: AsyncExitStack) -> Registration:
    """Begin the first role of a replica; the arbiter decides which one is next."""
    app, settings, clock = process.app, process.settings, process.clock
    credentials = credentials_of(os.environ)
    transport = http1_transport(credentials)
    stack.push_async_callback(transport.close)
    door = RoleDoor(clock.boottime)
    arbiter = Arbiter(
        split_urls(settings.controller_urls),
        settings.name,
        author=author_of(settings.name, settings.replica_id, secrets.token_hex(4)),
        transport=transport,
    )
    stage = _ReplicaStage(process, arbiter, Peers(transport))
    supervisor = stage.supervisor = Supervisor(
        stage,
        arbiter,
        door,
        facts=ReplicaFacts(
            urls=process.urls,
            store_host=host_text(process.store_host),
            priority=settings.priority,
            keep_bytes=settings.replica_keep_bytes,
            min_in_sync=settings.min_in_sync,
            flush_mode=settings.flush_mode.value,
            recovery_wait_seconds=settings.recovery_wait_seconds,
        ),
        transport=transport,
        clock=clock,
    )
    await supervisor.open()
    stack.push_async_callback(supervisor.stop)
    registration = stage.registration = _registration(
        process,
        topics=lambda: _routable(stage.store),
        version=lambda: stage.first_version + stage.store.state.version,
        place=stage.place,
    )
    app.readiness.door = door
    app.readiness.incapacities.append(supervisor.incapacity)
    app.farewells.append(supervisor.farewell)
    supervisor.start()
    await supervisor.has_begun.wait()
    return registration


class _ReplicaStage:
    """The broker around the roles of a replica."""

    def __init__(self, process: Process, arbiter: Arbiter, peers: Peers) -> None:
        self.supervisor: Supervisor
        self.registration: Registration
        self.store: MessageStore  # the one that was opened last
        self.first_version = 0  # of its topics; grows with each opening
        self._process = process
        self._arbiter = arbiter
        self._peers = peers

    async def open_store(self, cut_to: int | None) -> MessageStore:
        process, settings = self._process, self._process.settings
        opened = partial(
            open_store,
            settings,
            process.store_host,
            process.clock,
            tracing=process.app.tracing,
        )
        try:
            self.store = await opened(cut_to=cut_to)
        except LostRecordsStartError as error:
            if not await may_give_up(
                self._arbiter,
                self._peers,
                settings.replica_id,
                within_seconds=settings.recovery_wait_seconds,
            ):
                raise
            _log.error("damaged records are given up, to be copied again", reason=str(error))
            self.store = await opened(gives_up_damage=True)
        self.first_version = process.clock.now_ms() << _VERSION_SHIFT
        return self.store

    def working(
        self, store: MessageStore, replication: Replication, *, is_master: bool
    ) -> AbstractAsyncContextManager[None]:
        return working(
            self._process,
            store,
            replication,
            self.supervisor,
            self.registration,
            is_master=is_master,
        )

    def remember_row(self, known: Change) -> None:
        remember_row(self._process.settings.store_dir, known)

    def place_changed(self) -> None:
        self.registration.topics_changed()

    def place(self) -> Place:
        """Return the broker's place among the brokers of its name."""
        supervisor, settings = self.supervisor, self._process.settings
        return Place(
            MASTER_ID if supervisor.role is Role.MASTER else settings.replica_id,
            supervisor.epoch,
            _role_of(supervisor),
            settings.replica_id,
            self.store.state.store_hosts[::-1],
        )


def _role_of(supervisor: Supervisor | None) -> BrokerRole:
    """Return a broker's role, as clients know roles."""
    if supervisor is None or supervisor.role is Role.MASTER:
        return "master"
    return "standby" if supervisor.is_in_sync else "learner"


@asynccontextmanager
async def working(
    process: Process,
    store: MessageStore,
    replication: Replication,
    supervisor: Supervisor | None,
    registration: Registration,
    *,
    is_master: bool = True,
) -> AsyncIterator[None]:
    """Let the application answer requests by parts that work with *store*, and run their loops.

    A replica that is not the master has all parts, too: the door refuses what they must not do.
    """
    app, settings, clock = process.app, process.settings, process.clock
    parts, readiness = Parts(), app.readiness
    compose(
        parts,
        process,
        store,
        replication=replication,
        supervisor=supervisor,
        registration=registration,
    )
    tiering = await _open_tiering(settings, store, clock, is_master=is_master)
    tier_scrub = None
    if tiering is not None:
        if settings.tier_scrub_hours:
            tier_scrub = TierScrub(tiering, hours=settings.tier_scrub_hours)
        parts[Status].tiering, parts[Status].tier_scrub = tiering, tier_scrub
    replication.tier = None if tiering is None or is_master else TierCopies(store, tiering)
    app.parts = parts
    app.open_routes()
    scrub = Scrub(store, hours=settings.scrub_hours) if settings.scrub_hours else None
    if scrub is not None and supervisor is not None:
        scrub.on_rot = supervisor.repair_of(store, replication).at
    lags, timers, carrier = parts[GroupLags], parts[Timers], parts[TransactionCarrier]

    async def carry_forward(log_offset: int) -> None:
        """Store waiting messages from before *log_offset* again, before they are deleted."""
        await timers.carry_forward(log_offset)
        await carrier.carry_forward(log_offset)

    async with AsyncExitStack() as stack:
        for metrics in BROKER_METRICS:
            stack.enter_context(app.telling(parts.make(metrics)))
        if scrub is not None:
            stack.enter_context(app.telling(ScrubMetrics(scrub)))
        if tiering is not None:
            stack.push_async_callback(tiering.close)
            stack.enter_context(app.telling(TierMetrics(tiering, tier_scrub)))
        app.files_needed = lambda: FILES_NEEDED + store.unopened_files_max
        consumption = parts[GroupWork].consumption
        stack.enter_context(_added(app.metrics_hooks, [lags.measure, consumption.refresh]))
        exhaustions = [process.senders.exhaustion, process.consumers.exhaustion]
        stack.enter_context(_added(readiness.incapacities, [*exhaustions, store.incapacity]))
        held, work = parts[HeldRequests], parts[GroupWork]
        releases = [held.close, work.watchers.release_all]
        # Not at the end of a role: the next one reads from the same store.
        stack.enter_context(_added(app.stop_hooks, [*releases, store.cold.close]))
        _log.info(
            "broker open",
            broker=settings.name,
            role=_role_of(supervisor),
            url=process.urls["default"],
            store=str(settings.store_dir),
            flush_mode=settings.flush_mode.value,
            log_min_offset=store.log_min_offset,
            log_max_offset=store.log_max_offset,
            topics=len(store.state.topics),
        )
        rules = _retention(settings) if is_master else _followed_retention(store, replication)
        upkeep = Upkeep(
            store,
            rules,
            carry_forward=carry_forward,
            lags=lags,
            kept_from=replication.kept_from,
            scrub=scrub,
            tiering=tiering,
            tier_scrub=tier_scrub,
        )
        loops: list[_Loop] = [upkeep]
        if is_master:
            await carrier.carry_imported()
            loops += [TimerLoop(store, timers, clock), session_loop(parts[Members])]
            loops.append(
                BackgroundLoop("consumption", consumption.settle, period_seconds=SETTLE_SECONDS)
            )
        for loop in loops:
            loop.start()
            stack.push_async_callback(loop.stop)
        for release in releases:  # at the end of a role
            stack.callback(release)
        yield


@contextmanager
def _added(hooks: list[_HookT], added: Sequence[_HookT]) -> Iterator[None]:
    """Add functions to a list for the block."""
    hooks += added
    try:
        yield
    finally:
        # A stopping service has let go of some by itself.
        hooks[:] = [hook for hook in hooks if hook not in added]


def compose(
    parts: Parts,
    process: Process,
    store: MessageStore,
    *,
    replication: Replication,
    supervisor: Supervisor | None,
    registration: Registration,
) -> None:
    """Make all parts that answer requests, and add them to *parts*."""
    settings, clock, store_host = process.settings, process.clock, process.store_host
    parts.add(store)
    parts.add(replication)
    parts.add(Switching(supervisor))
    copies = GroupCopies(store, replication)
    parts.add(Absence() if supervisor is None else Absence(supervisor.doubt))

    # Requests in progress, and requests that wait.
    parts.add(settings, BrokerSettings)
    senders, consumers = parts.add(process.senders), parts.add(process.consumers)
    held = parts.add(
        HeldRequests(settings.held_requests_max, clock, lambda position: examine(store, position))
    )
    held_of_groups = HeldPlaces(
        maximum=settings.held_group_requests_max, limit_name="held_group_requests_max"
    )
    work = parts.add(GroupWork.begin(store, clock, held_of_groups))

    # Topics and groups.
    def topic_gone(topic: str) -> None:
        held.topic_gone(topic)
        work.watchers.wake_topic(topic)

    topics = parts.add(
        Topics(
            store,
            auto_create=settings.auto_create_topics,
            count_max=settings.topics_max,
            on_change=registration.topics_changed,
            changes_known=registration.told,
            on_delete=topic_gone,
            ordered_at=registration.ordered_at,
        )
    )
    groups = parts.add(
        Groups(work, topics, auto_create=settings.auto_create_groups, count_max=settings.groups_max)
    )
    members = parts.add(Members(work, topics, groups, count_max=settings.members_max))
    locks = parts.add(QueueLocks(work, topics, groups, members))
    parts.add(PositionsOfGroups(work, topics, groups, locks))
    parts.add(PastOfGroups(store))
    parts.add(GroupLags(store))

    # Messages going out.
    parts.add(Puller(store, topics, held))
    parts.add(Finder(store, topics))
    parts.add(LogFeed(store, held))
    deliveries = parts.add(
        Deliveries(
            work,
            topics,
            groups,
            members,
            broker_name=settings.name,
            limits=LeaseLimits(settings.unfinished_max, settings.unfinished_total_max),
        )
    )

    def arrived(queues: Sequence[tuple[str, int]]) -> None:
        held.arrived(queues)
        deliveries.waiters.arrived(queues)

    store.on_arrival = arrived

    # Messages coming in, now or later.
    scheduled = parts.add(
        Scheduled(
            store,
            broker_name=settings.name,
            delay_seconds_max=settings.delay_seconds_max,
            timers_max=settings.timers_max,
        )
    )
    parts.add(Timers(store, clock))
    sender = parts.add(
        Sender(
            store,
            topics,
            scheduled,
            broker_name=settings.name,
            store_host=store_host,
            copies=copies,
            clock=clock,
        )
    )
    parts.add(Gathering(store, sender))
    parts.add(
        IdempotentSender(
            store,
            sender,
            window_seconds=settings.idempotency_window_seconds,
            broker_name=settings.name,
            clock=clock,
        )
    )
    parts.add(Retries(work, topics, groups, locks, scheduled))
    parts.add(DeadLetters(work, groups))
    transaction_log = TransactionLog(store)
    transactions = parts.add(
        Transactions(
            store,
            sender,
            scheduled,
            transaction_log,
            broker_name=settings.name,
            count_max=settings.transactions_max,
            store_host=store_host,
            clock=clock,
        )
    )
    parts.add(AuditLog(store, store_host=store_host, clock=clock))
    parts.add(TransactionViews(store, transaction_log, broker_name=settings.name))
    parts.add(
        TransactionCarrier(
            store, transaction_log, transactions.turns, store_host=store_host, clock=clock
        )
    )

    # The broker itself.
    role = _role_of(supervisor)
    identity = parts.add(
        Identity(
            cluster=settings.cluster,
            broker_name=settings.name,
            broker_id=MASTER_ID if role == "master" else settings.replica_id,
            store_host=host_text(store_host),
            version=version_of("eruca-broker"),
            started_at=datetime.now(UTC),
            flush_mode=settings.flush_mode.value,
        )
    )
    parts.add(Offsets(store, topics, identity.started_at))
    parts.add(
        Status(
            identity,
            store,
            held,
            senders,
            consumers,
            role=lambda: _role_of(supervisor),
            clock=clock,
        )
    )


async def _open_tiering(
    settings: BrokerSettings, store: MessageStore, clock: Clock, *, is_master: bool
) -> Tiering | None:
    """Return the tier of *store*; None: there is none.

    Raises:
        StartError: Its setting is invalid, or obstore is not installed.
        OSError: The cache cannot be made.
    """
    repository = open_tier(settings)
    if repository is None:
        return None
    tiering = Tiering(
        store,
        repository,
        TierSettings(
            settings.cluster,
            settings.name,
            cache_bytes_max=settings.tier_cache_bytes_max,
            upload_rate_max=settings.tier_upload_rate_max,
            keep_hours=settings.tier_retention_hours,
            disk_high_ratio=settings.disk_high_ratio,
            renews=settings.tier_renewal,
        ),
        clock,
        is_master=is_master,
    )
    await tiering.open()
    return tiering


def _budget(kind: type[_BudgetT], settings: BrokerSettings, name: str, *, largest: int) -> _BudgetT:
    """Return the budget of the setting *name*; the largest request takes *largest* of it."""
    maximum: int = getattr(settings, name)
    return kind(name, maximum, client_max=client_max_of(maximum, settings.client_share, largest))


def _retention(settings: BrokerSettings) -> RetentionRules:
    return RetentionRules(
        reserved_hours=settings.retention_hours,
        delete_hours=split_hours(settings.delete_hours),
        disk_high_ratio=settings.disk_high_ratio,
        disk_forced_ratio=settings.disk_forced_ratio,
        disk_refuse_ratio=settings.disk_refuse_ratio,
    )


def _followed_retention(store: MessageStore, replication: Replication) -> FollowedRetention:
    def min_offset() -> int:
        follower = replication.follower
        return 0 if follower is None else follower.min_offset

    return FollowedRetention(store, min_offset)


def _routable(store: MessageStore) -> list[TopicConfig]:
    return [topic_config(topic) for topic in store.state.topics.values() if topic.is_routable]


def _warn_of_wide_topics(store: MessageStore) -> None:
    users_topics = [topic for topic in store.state.topics.values() if not topic.is_system]
    if too_wide := [topic.name for topic in users_topics if not topic.is_routable]:
        _log.warning(
            "imported topics have too many queues and are in no route",
            topics=too_wide[:_SHOWN_MAX],
            count=len(too_wide),
            queue_count_max=QUEUE_COUNT_MAX,
        )


def _registration(
    process: Process,
    *,
    topics: Callable[[], list[TopicConfig]],
    version: Callable[[], int],
    on_outcome: Callable[[], None] = lambda: None,
    place: Callable[[], Place] = lambda: ONLY_BROKER,
) -> Registration:
    settings = process.settings
    return Registration(
        Registrant(
            cluster=settings.cluster,
            broker_name=settings.name,
            urls=process.urls,
            store_host=host_text(process.store_host),
            heartbeat_seconds=settings.heartbeat_seconds,
            registration_seconds=settings.registration_seconds,
            expiry_seconds=settings.expiry_seconds,
        ),
        split_urls(settings.namesrv_urls),
        topics=topics,
        version=version,
        clock=process.clock,
        credentials=credentials_of(os.environ),
        on_outcome=on_outcome,
        place=place,
    )
