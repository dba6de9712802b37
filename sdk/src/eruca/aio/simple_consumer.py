"""The simple consumer: messages one by one, without queues, members or a session.

It asks the brokers of its topics in turn for messages, which are its own for a time, and finishes
each by itself. Any number of consumers of a group may do so; brokers see to it that no two have a
message at the same time. What is not finished in time comes again, to whoever asks next.

Brokers that do not answer are passed over as long as others do, and one that asks for patience
(Retry-After) is asked again only after it. With one broker the wait is one
held request; with several it goes round, so that a message waits a few seconds at most for a lone
consumer, and less the more there are.

Source: RocketMQ 5, ``SimpleConsumer`` of its gRPC client.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

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
from eruca.contract.limits import DELIVERY_COUNT_MAX, HANDLE_COUNT_MAX, WAIT_SECONDS_MAX
from eruca.core.simple_settings import (
    RECEIVE_COUNT_DEFAULT,
    RECEIVE_SECONDS_DEFAULT,
    SimpleSettings,
    check_invisible,
)
from eruca.core.subscription_filter import filter_type

if TYPE_CHECKING:
    from eruca.aio.client_context import ClientContext
    from eruca.aio.delivery_api import DeliveryApi
    from eruca.core.delivery import Delivery

HOLD_SECONDS: Final = 1.0  # at one broker of several, before the next one is asked
_FAILURE_SECONDS: Final = 0.2  # before brokers are asked again that all failed
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


class _Failure(NamedTuple):
    error: ErucaError
    retry_at: float  # by the loop's clock; the broker has asked for so much patience


class AsyncSimpleConsumer:
    """Receives messages and finishes each by itself; made by :meth:`AsyncClient.simple_consumer`.

    Any number of tasks may use it at the same time.
    """

    def __init__(self, context: ClientContext, settings: SimpleSettings) -> None:
        self._context = context
        self._settings = settings
        self._api_made: DeliveryApi | None = None
        self._turn = 0
        self._is_closed = False

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._settings.group

    async def receive(
        self,
        max_count: int = RECEIVE_COUNT_DEFAULT,
        wait: float = RECEIVE_SECONDS_DEFAULT,
        *,
        invisible_seconds: float | None = None,
    ) -> list[Delivery]:
        """Return messages that are this consumer's for a time; none if *wait* seconds bring none.

        Args:
            max_count: How many at most, up to 32.
            wait: Seconds to wait for the first.
            invisible_seconds: For how long; by default as the consumer was made with.

        Raises:
            TopicNotFoundError: A topic does not exist.
            SubscriptionConflictError: The group consumes the topic with another filter.
            RequestError, RefusedError: A broker will not have it, and repeating it is useless.
            ErucaError: No broker answered while waiting.
        """
        self._check_usable()
        if not 1 <= max_count <= DELIVERY_COUNT_MAX:
            raise ValidationError(f"max_count: {max_count} is not within 1 to {DELIVERY_COUNT_MAX}")
        seconds = self._settings.invisible_seconds
        if invisible_seconds is not None:
            check_invisible(invisible_seconds)
            seconds = invisible_seconds
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(wait, 0.0)
        failures: dict[_Target, _Failure] = {}  # of those that have not answered since
        is_first_round = True
        while True:
            targets = await self._targets()
            for target in targets:
                if target in failures and loop.time() < failures[target].retry_at:
                    continue
                left = max(deadline - loop.time(), 0.0)
                hold = 0.0 if is_first_round else _hold(left, len(targets))
                try:
                    found = await self._ask(target, max_count, seconds, hold)
                except _PASSING_ERRORS as error:
                    self._note(target, error)
                    retry_at = loop.time() + (error.retry_after_seconds or 0.0)
                    failures[target] = _Failure(error, retry_at)
                    continue
                if found:
                    return found
                failures.pop(target, None)
                if left <= 0 and not is_first_round:
                    break
            failed = [failures[target] for target in targets if target in failures]
            have_all_failed = len(failed) == len(targets)
            if loop.time() >= deadline:
                if have_all_failed:
                    raise failed[-1].error
                return []
            if have_all_failed:
                if all(isinstance(failure.error, TopicNotFoundError) for failure in failed):
                    raise failed[-1].error
                retry_at = min(failure.retry_at for failure in failed)
                await asyncio.sleep(
                    min(max(retry_at - loop.time(), _FAILURE_SECONDS), deadline - loop.time())
                )
            is_first_round = False

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
        from eruca.aio.broker_api import checked_request  # pydantic: loaded when first needed
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
            from eruca.aio.delivery_api import DeliveryApi  # needs the models, as admin does

            self._api_made = DeliveryApi(
                self._context.held_transport,
                self.group,
                timeout=self._context.settings.timeout_seconds,
            )
        return self._api_made

    async def _targets(self) -> list[_Target]:
        """Return the brokers to ask, for each topic, the next one in turn first.

        Raises:
            TopicNotFoundError: A topic does not exist.
            NoRouteError: No live broker has any of them.
        """
        targets: list[_Target] = []
        for topic in self._settings.subscriptions:
            view = await self._context.routes.subscribe_view_of_new(topic)
            names = dict.fromkeys(queue.broker_name for queue in view.queues)
            targets += [_Target(topic, name) for name in names]
        if not targets:
            topics = ", ".join(self._settings.subscriptions)
            raise NoRouteError(f"no live broker has queues to read of {topics}")
        self._turn += 1
        first = self._turn % len(targets)
        return targets[first:] + targets[:first]

    async def _ask(
        self, target: _Target, max_count: int, invisible_seconds: float, hold: float
    ) -> list[Delivery]:
        from eruca.contract.deliveries import DeliveryRequest  # pydantic: loaded when first needed
        from eruca.core.delivery import delivery_of

        self._check_usable()
        subscription = self._settings.subscriptions[target.topic]
        request = DeliveryRequest(
            topic=target.topic,
            filter=subscription.expression,
            filter_type=filter_type(subscription),
            max_count=max_count,
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
        _logger.info("no deliveries from %s for now: %s", target.broker_name, error)
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


def _hold(left: float, target_count: int) -> float:
    return min(left, WAIT_SECONDS_MAX if target_count == 1 else HOLD_SECONDS)


def _by_broker(deliveries: Delivery | Iterable[Delivery]) -> dict[str, list[Delivery]]:
    several = deliveries if isinstance(deliveries, Iterable) else (deliveries,)
    by_broker: defaultdict[str, list[Delivery]] = defaultdict(list)
    for delivery in several:
        by_broker[delivery.broker_name].append(delivery)
    return by_broker


def _parts(deliveries: list[Delivery]) -> Iterable[list[str]]:
    for first in range(0, len(deliveries), HANDLE_COUNT_MAX):
        yield [one.handle for one in deliveries[first : first + HANDLE_COUNT_MAX]]
