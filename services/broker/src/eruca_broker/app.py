"""The broker as an application: its document, and the parts that start and stop with it.

:mod:`.wiring` connects the parts that answer requests. The lifespan ends its parts in the opposite
order of their start, even if the start was not completed. The store, opened first, is closed last.
"""

from __future__ import annotations

import os
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Final

import structlog

from eruca.contract.errors import ConflictError, UnavailableError
from eruca.contract.limits import QUEUE_COUNT_MAX
from eruca.contract.records import Host
from eruca.services.http import credentials_of
from eruca_broker.addresses import store_host_of, urls_of
from eruca_broker.api import (
    dead_letters,
    deliveries,
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
)
from eruca_broker.api.dependencies import Broker
from eruca_broker.api.messages import find, pull, send
from eruca_broker.api.metrics import BrokerMetrics
from eruca_broker.api.transactions import checking, deciding, views
from eruca_broker.core.log.retention import RetentionRules
from eruca_broker.core.records.rendering import host_text
from eruca_broker.loops.registration import Registrant, Registration
from eruca_broker.loops.sessions import session_loop
from eruca_broker.loops.timers import TimerLoop
from eruca_broker.loops.upkeep import Upkeep
from eruca_broker.processors.topics import topic_config
from eruca_broker.settings import BrokerSettings, split_hours
from eruca_broker.store.config.rocketmq_json import UnreadableConfigError
from eruca_broker.store.files.directory_lock import StoreLockedError
from eruca_broker.store.files.refusals import is_scarcity
from eruca_broker.store.log.commit_log import CorruptLogError
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.scrub import Scrub
from eruca_broker.store.settings import StoreSettings
from eruca_broker.wiring import wire
from eruca_chassis.app import FILES_NEEDED, ServiceApp
from eruca_chassis.clock import Clock, SystemClock
from eruca_chassis.readiness import Readiness
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
    {"name": "offsets", "description": "Get offsets of queues, and commit those of groups"},
    {"name": "groups", "description": "Consumer groups: settings, members, locks of queues"},
    {"name": "retries", "description": "Redeliver messages that were not consumed"},
    {"name": "deliveries", "description": "Consume by plain HTTP, message by message"},
    {"name": "dead letters", "description": "Messages that failed after their last retry"},
    {"name": "delayed messages", "description": "List and recall scheduled messages"},
    {"name": "transactions", "description": "Messages that are stored first and decided later"},
    {"name": "log", "description": "The log itself, for projections"},
    {"name": "status", "description": "The broker's identity and state"},
)
_ROUTERS: Final = (  # in the document's order
    topics.router,
    send.router,
    pull.router,
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
    deciding.router,
    views.router,
    checking.router,
    status.router,
)
_SHOWN_MAX: Final = 10  # topics that one log line names
_VERSION_SHIFT: Final = 20  # bits for the changes of topics in one run of the process
_QUEUE_FILES_MAX: Final = 1_024  # of consume queues that are open at a time

_log = structlog.get_logger()


def create_app(settings: BrokerSettings, clock: Clock | None = None) -> ServiceApp:
    """Return the broker's application; its lifespan opens the store and closes it."""
    clock = clock or SystemClock()

    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        addresses = app.addresses or [("127.0.0.1", settings.port)]  # called in process
        store_host = store_host_of(settings, addresses)
        urls = urls_of(settings, addresses)
        async with AsyncExitStack() as stack:
            store = await _open_store(settings, store_host, clock)
            stack.push_async_callback(store.close)
            registration = _registration(
                settings, store, store_host, urls, clock, gate=_NameGate(app.readiness)
            )
            broker = wire(
                settings,
                store,
                store_host,
                clock,
                topics_changed=registration.topics_changed,
                ordered_at=registration.ordered_at,
            )
            app.state.broker = broker
            app.files_needed = lambda: FILES_NEEDED + store.unopened_files_max
            app.readiness.incapacities += [
                broker.in_flight.exhaustion,
                broker.consume_in_flight.exhaustion,
            ]
            app.open_hot_routes(broker)
            scrub = Scrub(store, hours=settings.scrub_hours) if settings.scrub_hours else None
            _measure(app, broker, scrub, stack)
            app.readiness.incapacities.append(store.incapacity)
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
            await broker.transaction_carrier.carry_imported()
            # A starting broker informs the name servers last, a stopping one first.
            for loop in (
                _upkeep(settings, broker, scrub),
                TimerLoop(store, broker.timers, clock),
                session_loop(broker.members),
                registration,
            ):
                loop.start()
                stack.push_async_callback(loop.stop)
            stack.callback(app.begin_stop)
            # Before a send is accepted whose message no consumer would see.
            await registration.first_outcomes()
            if registration.refusal is None:
                app.readiness.ready()
            yield

    return ServiceApp(
        title="Eruca broker",
        summary="One commit log, and the queues, index and offsets made from it",
        description=_DESCRIPTION,
        version=version("eruca-broker"),
        tags=_TAGS,
        routers=_ROUTERS,
        lifespan=lifespan,
        body_size_max=settings.body_size_max,
        guard=settings.guard(),
        client_share=settings.client_share,
    )


def _queue_files_max() -> int:
    """Return the maximum number of open queue files: half of the limit, at most."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_limited = limit != resource.RLIM_INFINITY
    return min(_QUEUE_FILES_MAX, limit // 2) if is_limited else _QUEUE_FILES_MAX


async def _open_store(settings: BrokerSettings, store_host: Host, clock: Clock) -> MessageStore:
    store_settings = StoreSettings(
        store_host=store_host,
        flush_mode=settings.flush_mode,
        segment_size=settings.segment_size,
        queue_file_entries=settings.queue_file_entries,
        index_slots=settings.index_slots,
        index_entries=settings.index_entries,
        open_files_max=_queue_files_max(),
        is_log_warmed=settings.warm_segments,
        has_group_access=settings.group_access,
        is_damage_cut=settings.cut_damage,
    )
    try:
        return await MessageStore.open(settings.store_dir, store_settings, clock)
    except (StoreLockedError, CorruptLogError, UnreadableConfigError, UnavailableError) as error:
        raise StartError(str(error)) from error
    except OSError as error:
        # Never suggest another directory: there the broker would start empty.
        fix = "let the broker's user read and write everything in it"
        if is_scarcity(error):
            fix = "make room there and start the broker again; acknowledged messages are kept"
        where = f"{error.filename}: " if error.filename else ""
        reason = f"{where}{error.strerror or error}"
        raise StartError(
            f"the store in {settings.store_dir} cannot be opened: {reason}; {fix}"
        ) from error


def _measure(app: ServiceApp, broker: Broker, scrub: Scrub | None, stack: AsyncExitStack) -> None:
    """Let the application report the broker's metrics, until the stack ends."""
    stack.enter_context(app.telling(BrokerMetrics(broker, scrub)))
    app.metrics_hooks.append(broker.lags.measure)
    stack.callback(app.metrics_hooks.remove, broker.lags.measure)


def _upkeep(settings: BrokerSettings, broker: Broker, scrub: Scrub | None) -> Upkeep:
    return Upkeep(
        broker.store,
        _retention(settings),
        carry_forward=partial(_carry_forward, broker),
        lags=broker.lags,
        scrub=scrub,
    )


def _retention(settings: BrokerSettings) -> RetentionRules:
    return RetentionRules(
        reserved_hours=settings.retention_hours,
        delete_hours=split_hours(settings.delete_hours),
        disk_high=settings.disk_high,
        disk_forced=settings.disk_forced,
        disk_refuse=settings.disk_refuse,
    )


async def _carry_forward(broker: Broker, log_offset: int) -> None:
    """Store waiting messages from before *log_offset* again, before their segment is deleted."""
    await broker.timers.carry_forward(log_offset)
    await broker.transaction_carrier.carry_forward(log_offset)


class _NameGate:
    """Keeps a broker from working while another one has its name at the name servers."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self._is_shut = False

    def judge(self, refusal: ConflictError | None) -> None:
        """Close the gate because of a *refusal*; open it once there is none."""
        if refusal is not None:
            self._readiness.not_ready(
                f"its name is in use, so consumers would not see its messages: {refusal.detail}",
                fix=refusal.fix,
            )
        elif self._is_shut:
            self._readiness.ready()
        self._is_shut = refusal is not None


def _registration(
    settings: BrokerSettings,
    store: MessageStore,
    store_host: Host,
    urls: dict[str, str],
    clock: Clock,
    *,
    gate: _NameGate,
) -> Registration:
    state = store.state
    users_topics = [topic for topic in state.topics.values() if not topic.is_system]
    if too_wide := [topic.name for topic in users_topics if not topic.is_routable]:
        _log.warning(
            "imported topics have too many queues and are in no route",
            topics=too_wide[:_SHOWN_MAX],
            count=len(too_wide),
            queue_count_max=QUEUE_COUNT_MAX,
        )
    first_version = clock.now_ms() << _VERSION_SHIFT  # grows across restarts too
    registration = Registration(
        Registrant(
            cluster=settings.cluster,
            broker_name=settings.name,
            broker_id=settings.id,
            urls=urls,
            store_host=host_text(store_host),
            heartbeat_seconds=settings.heartbeat_seconds,
            registration_seconds=settings.registration_seconds,
            expiry_seconds=settings.expiry_seconds,
        ),
        split_urls(settings.namesrv_urls),
        topics=lambda: [topic_config(t) for t in state.topics.values() if t.is_routable],
        version=lambda: first_version + state.version,
        clock=clock,
        credentials=credentials_of(os.environ),
        on_outcome=lambda: gate.judge(registration.refusal),
    )
    return registration
