"""A started consumer: its parts, wired together, and the order in which they start and end.

Start: find the brokers, join, then allocate queues. Stop: hand over all queues (or time out), leave
the group, and only then end the background tasks. So no lock is left to expire.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from eruca.aio.cluster.group_api import GroupApi
from eruca.aio.cluster.group_start import warn_of_unused_start
from eruca.aio.cluster.routes import BROKERS_AWAY_SECONDS
from eruca.aio.push.background import Background
from eruca.aio.push.broadcaster import Broadcaster
from eruca.aio.push.commits import BrokerOffsets, Commits
from eruca.aio.push.concurrent_runner import ConcurrentRunner
from eruca.aio.push.held_queue import HeldQueue
from eruca.aio.push.intercepted_calls import calls_of
from eruca.aio.push.membership import Membership
from eruca.aio.push.offset_file import OffsetFile, offsets_directory
from eruca.aio.push.orderly_runner import OrderlyRunner
from eruca.aio.push.reader import Reader
from eruca.aio.push.rebalancer import Rebalancer
from eruca.aio.push.retry_limit import RetryLimit
from eruca.aio.push.send_backs import SendBacks
from eruca.aio.push.standby import Standby
from eruca.aio.push.url_book import UrlBook
from eruca.contract.errors import (
    ErucaError,
    NoRouteError,
    TimeoutExpiredError,
    TransportError,
    UnavailableError,
    ValidationError,
)
from eruca.contract.groups import Heartbeat, MemberHandling
from eruca.contract.groups import Subscription as SubscriptionModel
from eruca.contract.names import retry_topic
from eruca.core.consuming.handler_table import HandlerTable
from eruca.core.consuming.push_settings import PushSettings
from eruca.core.filters.tag_expression import SUBSCRIBE_ALL, TAG_TYPE, Subscription
from eruca.core.interceptors import Interceptor
from eruca.core.messages.message_queue import MessageQueue, checked_queue
from eruca.core.pauses import doubled

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext

_START_AGAIN_SECONDS: Final = 0.1  # before the brokers are tried again; doubles
_START_AGAIN_SECONDS_MAX: Final = 1.0
_AWAY: Final = (TransportError, TimeoutExpiredError, UnavailableError, NoRouteError)

_logger = logging.getLogger(__name__)


class Division(Protocol):
    """Decides which queues this consumer reads: its share of the group's, or all of them."""

    @property
    def held(self) -> Mapping[MessageQueue, HeldQueue]:
        """The queues that are read or being handed over."""
        ...

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are read, sorted."""
        ...

    def start(self, membership: Membership) -> None:
        """Start as a member."""

    def kick(self) -> None:
        """Schedule a round."""

    def locks_at(self, broker_name: str) -> Mapping[MessageQueue, int]:
        """Return the tokens of the locks held at a broker; empty if nothing is locked."""
        ...

    def lose_broker(self, broker_name: str) -> None:
        """Lose the queues of a broker whose session has ended."""

    def lose_locks(self, tokens: Mapping[MessageQueue, int]) -> None:
        """Lose queues if they are still held by these tokens."""

    def lose(self, lost: Collection[HeldQueue]) -> None:
        """Stop reading queues that another member may own."""

    def give_up(self) -> None:
        """Begin no further batch: the consumer is about to leave."""

    async def stop(self) -> None:
        """Finish the running batches of every queue, then drop the queues."""


class RunningConsumer:
    """The parts of one consumer.

    Args:
        context: The client's; it provides routes and transports.
        settings: The consumer's.
        handlers: Its handlers.
        client_id: Its name in the group.
        incarnation: Distinguishes it from other processes with the same name.
        on_failure: Called with an error that ends the consumer.
        interceptors: Surround the handlers.
    """

    def __init__(
        self,
        context: ClientContext,
        settings: PushSettings,
        handlers: HandlerTable,
        *,
        client_id: str,
        incarnation: str,
        on_failure: Callable[[BaseException], None],
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        self._context = context
        self._settings = settings
        self._topics = handlers.topics
        self._background = Background(on_failure)
        self._handlers = handlers
        subscriptions = {topic: handlers.subscription(topic) for topic in self._topics}
        self._every_topic = list(self._topics)
        if settings.is_clustering:
            retries = retry_topic(settings.group)
            self._every_topic.append(retries)
            self._subscriptions = {**subscriptions, retries: Subscription(SUBSCRIBE_ALL)}
        else:
            self._subscriptions = subscriptions
        self._urls = UrlBook(context.routes, self._every_topic)
        self._api = GroupApi(
            context.held_transport,
            settings.group,
            client_id=client_id,
            incarnation=incarnation,
            timeout=context.settings.timeout_seconds,
        )
        self._calls = calls_of(settings, interceptors, context.statistics)
        self._membership = Membership(
            self._api,
            self._urls.url_of,
            _heartbeat(settings, incarnation, subscriptions),
            locks_at=self._locks_at,
            on_beat=self._kick,
            on_locks_gone=self._lose_locks,
            on_over=self._lose_broker,
            on_refused=on_failure,
            tasks=self._background,
            handling=self._handling,
        )
        self._standby = Standby(
            self._api,
            credentials=context.credentials,
            book=context.masters_book,
            session_seconds=settings.membership.session_seconds,
            limit=settings.consume_timeout_seconds,
            renewals=self._membership.renewals,
            begun_at=self._begun_at,
            on_locks_gone=self._shut_out,
            on_failure=on_failure,
        )
        self._client_id = client_id
        self._on_failure = on_failure
        self._runner: ConcurrentRunner | OrderlyRunner | None = None
        self._reader: Reader | None = None
        self._commits: Commits | None = None
        self._division: Division | None = None
        self._stop_listening: Callable[[], None] | None = None

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this consumer reads."""
        return [] if self._division is None else self._division.queues

    @property
    def damaged_count(self) -> int:
        """Number of messages skipped because they are damaged."""
        return 0 if self._reader is None else self._reader.damaged_count

    async def start(self) -> None:
        """Join the group, and start reading."""
        self._standby.start()
        await self._join()
        self._wire()
        self._stop_listening = self._context.routes.on_change(self._on_route_change)
        assert self._division is not None
        assert self._commits is not None
        self._background.start(self._commits.run(), "eruca commits")
        self._division.start(self._membership)

    async def stop(self) -> None:
        """Hand over all queues, and leave the group."""
        if self._stop_listening is not None:
            self._stop_listening()
        if self._division is not None:
            try:
                async with asyncio.timeout(self._settings.stop_timeout_seconds):
                    await self._division.stop()
            except TimeoutError:
                _logger.warning(
                    "handlers have not ended within %g s: their messages will be handled again",
                    self._settings.stop_timeout_seconds,
                )
                await self._commit_rest()
        await self._leave()

    async def abort(self) -> None:
        """End at once."""
        if self._stop_listening is not None:
            self._stop_listening()
        if self._division is not None:
            self._division.give_up()  # first, because from then on other members own the queues
        await self._leave()

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Hand out nothing from these queues; default: from all."""
        chosen = self._chosen(queues)
        assert self._reader is not None
        self._reader.pause(chosen, all_queues=not tuple(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Undo a pause."""
        chosen = self._chosen(queues)
        assert self._reader is not None
        self._reader.resume(chosen, all_queues=not tuple(queues))

    def _chosen(self, queues: Iterable[MessageQueue]) -> list[HeldQueue]:
        held = self._held
        chosen = tuple(checked_queue(queue) for queue in queues)
        for queue in chosen:
            if queue not in held:
                raise ValidationError(
                    f"queue: {queue} is not read by this consumer",
                    fix="see assignment for this consumer's queues",
                )
        return [held[queue] for queue in chosen or held]

    async def _leave(self) -> None:
        await self._standby.close()  # first, because its heartbeats would join again
        await self._membership.leave()
        if self._reader is not None:
            await self._reader.close()
        await self._background.close()

    async def _commit_rest(self) -> None:
        assert self._commits is not None
        for held in self._held.values():
            self._commits.note(held)
        try:
            await self._commits.flush()
        except ErucaError as error:
            _logger.info("the last offsets could not be committed: %s", error)

    async def _join(self) -> None:
        """Join at the brokers of the topics; wait for them as long as a restart takes.

        One answer is enough: the other brokers are joined in the background.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + BROKERS_AWAY_SECONDS
        pause = _START_AGAIN_SECONDS
        while True:
            try:
                if brokers := await self._find_brokers():
                    await self._warn_of_unused_start(brokers)
                    await self._membership.join(brokers)
                return
            except _AWAY as error:
                if loop.time() + pause > deadline:
                    raise
                if pause == _START_AGAIN_SECONDS:
                    _logger.warning(
                        "the consumer of %s cannot start yet; retrying for %g s: %s",
                        self._settings.group,
                        BROKERS_AWAY_SECONDS,
                        error,
                    )
            await asyncio.sleep(pause)
            pause = doubled(pause, 1, _START_AGAIN_SECONDS_MAX)

    async def _warn_of_unused_start(self, brokers: Iterable[str]) -> None:
        """Warn if the group already exists; call this first, because joining creates it."""
        settings = self._settings
        if not settings.is_clustering or settings.start is None:
            return
        urls = []
        for name in brokers:
            with suppress(NoRouteError):  # joining reports it
                urls.append(self._urls.url_of(name))
        timeout = self._context.settings.timeout_seconds
        await warn_of_unused_start(
            self._context.held_transport,
            urls,
            settings.group,
            self._topics,
            settings.start,
            timeout=timeout,
        )

    async def _find_brokers(self) -> list[str]:
        routes = self._context.routes
        names: set[str] = set()
        for topic in self._topics:
            view = await routes.consumers_view(topic, waits=self._settings.wait_for_topics)
            if view is not None:
                names.update(queue.broker_name for queue in view.queues)
        return sorted(names)

    def _wire(self) -> None:
        settings, context = self._settings, self._context
        send_backs = None
        file = None
        if settings.is_clustering:
            send_backs = SendBacks(
                self._api,
                self._urls.url_of_queue,
                self._membership.beat_soon,
                settings.retries.retries_max,
            )
            store: BrokerOffsets | OffsetFile = BrokerOffsets(
                self._api, self._urls.url_of_queue, self._membership.beat_soon
            )
        else:
            store = file = OffsetFile(
                offsets_directory(settings.offsets.directory), self._client_id, settings.group
            )
        self._commits = Commits(store, settings.offsets.commit_seconds)
        if settings.ordered:
            runner: ConcurrentRunner | OrderlyRunner = OrderlyRunner(
                settings,
                self._handlers,
                send_backs,
                retry_limit=RetryLimit(
                    settings.retries.retries_max, self._api, self._urls.url_of_queue
                ),
                on_lost=self._lose_one,
                on_failure=self._on_failure,
                calls=self._calls,
            )
        else:
            runner = ConcurrentRunner(
                settings,
                self._handlers,
                send_backs,
                on_lost=self._lose_one,
                on_failure=self._on_failure,
                calls=self._calls,
            )
        self._runner = runner
        self._reader = Reader(
            context,
            settings,
            self._subscriptions,
            runner=runner,
            commits=self._commits,
            background=self._background,
            bury=None if send_backs is None else send_backs.bury,
        )
        if file is not None:
            self._division = Broadcaster(
                settings,
                self._every_topic,
                context=context,
                reader=self._reader,
                offsets=file,
                background=self._background,
            )
        else:
            self._division = Rebalancer(
                settings,
                self._every_topic,
                self._client_id,
                api=self._api,
                routes=context.routes,
                urls=self._urls,
                reading=self._reader,
                background=self._background,
            )

    # --- what the membership tells ----------------------------------------------------------------

    @property
    def _held(self) -> Mapping[MessageQueue, HeldQueue]:
        return {} if self._division is None else self._division.held

    def _locks_at(self, broker_name: str) -> Mapping[MessageQueue, int]:
        return {} if self._division is None else self._division.locks_at(broker_name)

    def _kick(self) -> None:
        if self._division is not None:
            self._division.kick()

    def _lose_locks(self, tokens: Mapping[MessageQueue, int]) -> None:
        if self._division is not None:
            self._division.lose_locks(tokens)

    def _lose_broker(self, broker_name: str) -> None:
        if self._division is not None:
            self._division.lose_broker(broker_name)

    def _shut_out(self, tokens: Mapping[MessageQueue, int]) -> None:
        """Begin no further batch of these queues; called in the thread that renews sessions.

        The event loop drops the queues when a broker's next heartbeat answer reports the lost
        locks.
        """
        for queue, token in tokens.items():
            held = self._held.get(queue)
            if held is not None and held.token == token:
                held.is_draining = True

    def _handling(self) -> MemberHandling:
        window = self._calls.last_minute()
        return MemberHandling(
            covered_seconds=window.covered_seconds,
            message_count=window.message_count,
            failed_count=window.failed_count,
            call_count=window.call_count,
            busy_seconds=window.busy_seconds,
            longest_running_seconds=self._calls.longest_seconds(),
        )

    def _begun_at(self) -> float:
        return 0.0 if self._runner is None else self._runner.begun_at

    def _lose_one(self, held: HeldQueue) -> None:
        if self._division is not None:
            self._division.lose([held])

    def _on_route_change(self, topic: str) -> None:
        if topic in self._every_topic:
            self._kick()


def _heartbeat(
    settings: PushSettings, incarnation: str, subscriptions: Mapping[str, Subscription]
) -> Heartbeat:
    return Heartbeat(
        incarnation=incarnation,
        subscriptions=[
            SubscriptionModel(
                topic=topic,
                filter=subscription.expression,
                filter_type="tag" if subscription.expression_type == TAG_TYPE else "sql92",
            )
            for topic, subscription in sorted(subscriptions.items())
        ],
        message_model=settings.message_model,
        consume_type="push",
        session_seconds=settings.membership.session_seconds,
        is_static=settings.membership.is_static,
        replaces_subscription_version=settings.membership.replaces_subscription_version,
        start=settings.start,
    )
