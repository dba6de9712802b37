"""The simple consumer: messages one by one, without queues, members or a session.

It asks the brokers of its topics in turn for messages, which are its own for a time, and finishes
each by itself. Any number of consumers of a group may do so; brokers see to it that no two have a
message at the same time. What is not finished in time comes again, to whoever asks next.

Brokers that do not answer are passed over as long as others do, and one that asks for patience
(Retry-After) is asked again only after it. With one broker the wait is one held request; with
several it goes round, so that a message waits a few seconds at most for a lone consumer, and less
the more there are. One that hangs costs the client's time-out once in a while, for whether it has
handed out messages only its answer can tell.

Source: RocketMQ 5, ``SimpleConsumer`` of its gRPC client.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from eruca.aio.cluster.outages import Outages
from eruca.aio.handling import AsyncHandling
from eruca.contract.errors import (
    ClosedError,
    ErucaError,
    InternalError,
    NoRouteError,
    PermissionDeniedError,
    QueueNotFoundError,
    TimeoutExpiredError,
    TopicNotFoundError,
    TransportError,
    UnavailableError,
    ValidationError,
)
from eruca.contract.limits import DELIVERY_COUNT_MAX, HANDLE_COUNT_MAX
from eruca.core.checked_arguments import check_argument, checked_calls
from eruca.core.checked_numbers import check_count, check_wait
from eruca.core.consuming.receiving import Failures, ReceiveRounds
from eruca.core.consuming.simple_settings import (
    RECEIVE_COUNT_DEFAULT,
    RECEIVE_SECONDS_DEFAULT,
    SimpleSettings,
    check_invisible,
)
from eruca.core.filters.subscription_filter import filter_type

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext
    from eruca.aio.cluster.delivery_api import DeliveryApi
    from eruca.core.consuming.delivery import Delivery

_ROUTE_ERRORS: Final = (TopicNotFoundError, QueueNotFoundError, PermissionDeniedError, NoRouteError)
_PASSING_ERRORS: Final = (
    *_ROUTE_ERRORS,
    TransportError,
    TimeoutExpiredError,
    UnavailableError,
    InternalError,
)

_logger = logging.getLogger(__name__)


class _Target(NamedTuple):
    topic: str
    broker_name: str

    def __str__(self) -> str:
        return f"{self.topic} from {self.broker_name}"


@checked_calls(late={"Delivery": "eruca.core.consuming.delivery"})
class AsyncSimpleConsumer:
    """Receives messages and finishes each by itself; made by :meth:`AsyncClient.simple_consumer`.

    Any number of tasks may use it at the same time.
    """

    def __init__(self, context: ClientContext, settings: SimpleSettings) -> None:
        self._context = context
        self._settings = settings
        self._api_made: DeliveryApi | None = None
        self._turn = 0
        self._is_start_due = settings.start is not None  # to be compared with the group's
        self._failures: Failures[_Target] = Failures()
        self._outages = Outages(
            _logger, failed="no deliveries of %s for now: %s", over="deliveries of %s again"
        )
        self._is_closed = False

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._settings.group

    async def receive(
        self,
        count_max: int = RECEIVE_COUNT_DEFAULT,
        wait_seconds: float = RECEIVE_SECONDS_DEFAULT,
        *,
        invisible_seconds: float | None = None,
    ) -> list[Delivery]:
        """Return messages that are this consumer's for a time; none if *wait_seconds* bring none.

        Args:
            count_max: How many at most, up to 32.
            wait_seconds: The time to wait for the first.
            invisible_seconds: For how long; by default as the consumer was made with.

        Raises:
            TopicNotFoundError: A topic does not exist.
            NoLiveBrokerError: No broker has been there while waiting.
            SubscriptionConflictError: The group consumes the topic with another filter.
            RequestError, RefusedError: A broker will not have it, and repeating it is useless.
            ErucaError: No broker answered while waiting.
        """
        self._check_usable()
        check_count("count_max", count_max, 1, DELIVERY_COUNT_MAX)
        check_wait(wait_seconds)
        seconds = self._settings.invisible_seconds
        if invisible_seconds is not None:
            check_invisible(invisible_seconds)
            seconds = invisible_seconds
        loop = asyncio.get_running_loop()
        rounds: ReceiveRounds[_Target] = ReceiveRounds(loop.time() + wait_seconds, self._failures)
        while True:
            targets = await self._targets(wait_seconds)
            await self._warn_of_unused_start(targets)
            self._failures.keep_only(targets)
            found = await self._ask_in_turn(targets, rounds, count_max, seconds)
            if found:
                return found
            pause = rounds.pause(targets, loop.time())
            if pause is None:
                return []
            if pause:
                await asyncio.sleep(pause)

    async def ack(self, deliveries: Delivery | Iterable[Delivery]) -> None:
        """Finish messages: they do not come again. At each broker all of them, or none.

        Raises:
            StaleHandleError: One is somebody else's by now, or done.
            ExpiredHandleError: The time of one was over; it comes again.
            ErucaError: A broker did not answer; its messages may come again.
        """
        self._check_usable()
        for broker_name, some in _by_broker(deliveries).items():
            url = await self._url(some[0].message.queue.topic, broker_name)
            for handles in _parts(some):
                await self._api.ack(url, handles)

    async def nack(
        self,
        deliveries: Delivery | Iterable[Delivery],
        *,
        delay_seconds: float | None = None,
        reason: str = "failed",
        error: str | None = None,
    ) -> None:
        """Give messages up: they come again, or are dead letters. At each broker all, or none.

        Args:
            deliveries: The messages.
            delay_seconds: Before they come again; None: by the group's retry policy.
            reason: Why, in a word; kept with a dead letter.
            error: The error's text; kept with a dead letter.

        Raises:
            StaleHandleError, ExpiredHandleError: One was not this consumer's any more.
            ErucaError: A broker did not answer; its messages come again in any case.
        """
        from eruca.aio.cluster.requests import checked_request  # pydantic: loaded when needed
        from eruca.contract.deliveries import DeliveryNacks  # … as well

        self._check_usable()
        for broker_name, some in _by_broker(deliveries).items():
            url = await self._url(some[0].message.queue.topic, broker_name)
            for handles in _parts(some):
                with checked_request():
                    nacks = DeliveryNacks(
                        handles=handles, delay_seconds=delay_seconds, reason=reason, error=error
                    )
                await self._api.nack(url, nacks)

    async def extend(
        self,
        deliveries: Delivery | Iterable[Delivery],
        *,
        invisible_seconds: float | None = None,
    ) -> datetime:
        """Keep messages for longer, from now on; return until when all of them are kept.

        Args:
            deliveries: The messages; at least one.
            invisible_seconds: For how long; by default as they were received with.

        Raises:
            StaleHandleError, ExpiredHandleError: One was not this consumer's any more.
            ErucaError: A broker did not answer.
        """
        from eruca.contract.deliveries import DeliveryExtension  # pydantic: as above

        self._check_usable()
        if invisible_seconds is not None:
            check_invisible(invisible_seconds)
        kept_until = []
        for broker_name, some in _by_broker(deliveries).items():
            url = await self._url(some[0].message.queue.topic, broker_name)
            seconds = invisible_seconds or min(one.invisible_seconds for one in some)
            for handles in _parts(some):
                extension = DeliveryExtension(handles=handles, invisible_seconds=seconds)
                kept_until.append((await self._api.extend(url, extension)).visible_at)
        if not kept_until:
            raise ValidationError("deliveries: none is given")
        return min(kept_until)

    def handling(self, delivery: Delivery) -> AsyncHandling:
        """Return a context that keeps a message while its block runs, and finishes it at the end.

        Acknowledged where the block ends well; given up where it raises.
        """
        return AsyncHandling(self, delivery)

    async def close(self) -> None:
        """Stop receiving. What was received and not finished comes again when its time is over."""
        if not self._is_closed:
            self._is_closed = True
            self._context.forget(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def leave(self, *, drain: bool, failed: bool) -> None:
        """Close, as its client ends."""
        await self.close()

    @property
    def _api(self) -> DeliveryApi:
        if self._api_made is None:
            from eruca.aio.cluster.delivery_api import (
                DeliveryApi,  # needs the models, as admin does
            )

            self._api_made = DeliveryApi(
                self._context.held_transport,
                self.group,
                timeout=self._context.settings.timeout_seconds,
            )
        return self._api_made

    async def _targets(self, wait_seconds: float) -> list[_Target]:
        """Return the brokers to ask, for each topic, the next one in turn first.

        While none is registered at all, one is waited for up to *wait_seconds*.

        Raises:
            TopicNotFoundError: A topic does not exist.
            NoLiveBrokerError: None has come in that time.
            NoRouteError: No live broker has any of them.
        """
        targets: list[_Target] = []
        for topic in self._settings.subscriptions:
            view = await self._context.routes.subscribe_view_of_new(
                topic, patience_seconds=wait_seconds
            )
            names = dict.fromkeys(queue.broker_name for queue in view.queues)
            targets += [_Target(topic, name) for name in names]
        if not targets:
            topics = ", ".join(self._settings.subscriptions)
            raise NoRouteError(f"no live broker has queues to read of {topics}")
        self._turn += 1
        first = self._turn % len(targets)
        return targets[first:] + targets[:first]

    async def _warn_of_unused_start(self, targets: Sequence[_Target]) -> None:
        """Say once that the group began before, if it did; the first request makes it."""
        if not self._is_start_due:
            return
        self._is_start_due = False
        from eruca.aio.cluster.group_start import warn_of_unused_start  # late, as the models

        places = {target.broker_name: target.topic for target in targets}
        await warn_of_unused_start(
            self._context.held_transport,
            [await self._url(topic, name) for name, topic in places.items()],
            self.group,
            [*self._settings.subscriptions],
            self._settings.start,
            timeout=self._context.settings.timeout_seconds,
        )

    async def _ask_in_turn(
        self,
        targets: Sequence[_Target],
        rounds: ReceiveRounds[_Target],
        count_max: int,
        invisible_seconds: float,
    ) -> list[Delivery]:
        """Ask one broker after the other until one has messages; return what it has."""
        loop = asyncio.get_running_loop()
        for target in targets:
            begun = loop.time()
            if self._failures.is_passed_over(target, targets, begun):
                continue
            hold = rounds.hold(len(targets), begun)
            try:
                found = await self._ask(target, count_max, invisible_seconds, hold)
            except _PASSING_ERRORS as error:
                self._note(target, error)
                self._failures.failed(target, error, loop.time())
                continue
            self._failures.answered(target)
            self._outages.answered(str(target))
            if found:
                return found
            if rounds.is_last_asked(begun):
                break
        return []

    async def _ask(
        self, target: _Target, count_max: int, invisible_seconds: float, hold: float
    ) -> list[Delivery]:
        from eruca.contract.deliveries import DeliveryRequest  # pydantic: loaded when first needed
        from eruca.core.consuming.delivery import delivery_of

        self._check_usable()
        subscription = self._settings.subscriptions[target.topic]
        request = DeliveryRequest(
            topic=target.topic,
            filter=subscription.expression,
            filter_type=filter_type(subscription),
            count_max=count_max,
            invisible_seconds=invisible_seconds,
            wait_seconds=hold,
            start=self._settings.start,
        )
        url = await self._url(target.topic, target.broker_name)
        answer = await self._api.receive(url, request)
        now = time.monotonic()
        try:
            return [
                delivery_of(wire, target.broker_name, invisible_seconds, now=now)
                for wire in answer.deliveries
            ]
        except ValueError as error:
            raise TransportError(f"{url}: the deliveries cannot be read: {error}") from error

    def _note(self, target: _Target, error: ErucaError) -> None:
        self._outages.failed(str(target), error)
        if not isinstance(error, UnavailableError):
            self._context.routes.refresh_soon(target.topic)

    async def _url(self, topic: str, broker_name: str) -> str:
        view = await self._context.routes.subscribe_view(topic)
        urls: Mapping[int, str] = view.urls.get(broker_name, {})
        if not urls:
            self._context.routes.refresh_soon(topic)
            raise NoRouteError(f"broker {broker_name} of {topic} is not in the route")
        return urls[min(urls)]

    def _check_usable(self) -> None:
        if self._is_closed:
            raise ClosedError("the consumer is closed")


def _by_broker(deliveries: Delivery | Iterable[Delivery]) -> dict[str, list[Delivery]]:
    from eruca.core.consuming.delivery import Delivery  # late, as where they are made

    several = deliveries if isinstance(deliveries, Iterable) else (deliveries,)
    by_broker: defaultdict[str, list[Delivery]] = defaultdict(list)
    for delivery in several:
        check_argument("deliveries", delivery, Delivery)  # a generator is read but once: here
        by_broker[delivery.broker_name].append(delivery)
    return by_broker


def _parts(deliveries: list[Delivery]) -> Iterable[list[str]]:
    for first in range(0, len(deliveries), HANDLE_COUNT_MAX):
        yield [one.handle for one in deliveries[first : first + HANDLE_COUNT_MAX]]
