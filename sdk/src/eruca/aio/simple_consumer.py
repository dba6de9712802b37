"""The simple consumer: leases single messages, without queues, members or a session.

It requests messages from the brokers of its topics in turn. Each message comes under a lease, and
the program acknowledges it by itself. A group may have any number of such consumers. The brokers
never lease a message to two of them at once. A message that is not acknowledged before its lease
expires is redelivered to any consumer of the group.

Brokers that do not answer are skipped as long as others answer. A broker that asks for a pause
(Retry-After) is skipped for that pause. With one broker, waiting is one held request. With several,
the consumer goes round them. So a single consumer receives a message after a few seconds at most,
and several consumers sooner. A broker that hangs costs the client's timeout once in a while,
because only its answer shows whether it has leased messages.

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
from eruca.core.call_statistics import Sums
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
    """Leases messages and acknowledges each by itself; made by :meth:`AsyncClient.simple_consumer`.

    Any number of tasks may use it at the same time.
    """

    def __init__(self, context: ClientContext, settings: SimpleSettings) -> None:
        self._context = context
        self._settings = settings
        self._api_made: DeliveryApi | None = None
        self._turn = 0
        self._is_start_due = settings.start is not None  # the warning about an ignored start is due
        self._failures: Failures[_Target] = Failures()
        self._outages = Outages(
            _logger, failed="receiving %s failed; retrying: %s", over="receiving %s works again"
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
        """Lease messages and return them; empty if none arrive in *wait_seconds*.

        Args:
            count_max: Maximum number of messages, up to 32.
            wait_seconds: Maximum wait for the first message.
            invisible_seconds: Length of the lease; default: the consumer's.

        Raises:
            TopicNotFoundError: A topic does not exist.
            NoLiveBrokerError: No broker was live in time.
            SubscriptionConflictError: The group consumes the topic with another filter.
            RequestError, RefusedError: A broker refuses the request; a retry fails as well.
            ErucaError: No broker answered in time.
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
        """Acknowledge messages: they are not redelivered. At each broker all of them or none.

        Raises:
            StaleHandleError: One was redelivered, or is already acknowledged.
            ExpiredHandleError: The lease of one has expired; it is redelivered.
            ErucaError: A broker did not answer; its messages may be redelivered.
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
        """Reject messages: they are redelivered or become dead letters. At each broker all or none.

        Args:
            deliveries: The messages.
            delay_seconds: Delay before redelivery; None: by the group's retry policy.
            reason: Why, in a word; kept with a dead letter.
            error: The error's text; kept with a dead letter.

        Raises:
            StaleHandleError, ExpiredHandleError: This consumer's lease of one has ended.
            ErucaError: A broker did not answer; its messages are redelivered in any case.
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
        """Extend leases, counted from now; return the time when the first of them expires.

        Args:
            deliveries: The messages; at least one.
            invisible_seconds: New length of the lease; default: as received.

        Raises:
            StaleHandleError, ExpiredHandleError: This consumer's lease of one has ended.
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
            raise ValidationError("deliveries: expected at least one")
        return min(kept_until)

    def handling(self, delivery: Delivery) -> AsyncHandling:
        """Return a context that extends a message's lease while its block runs.

        If the block succeeds, the message is acknowledged. If it raises, the message is rejected.
        """
        return AsyncHandling(self, delivery, self._account)

    def _account(self, delivery: Delivery, sums: Sums) -> None:
        self._context.statistics.add("handle", delivery.message.topic, self.group, sums)

    async def close(self) -> None:
        """Stop receiving. Unacknowledged messages are redelivered when their leases expire."""
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
        """Close because the client ends."""
        await self.close()

    @property
    def _api(self) -> DeliveryApi:
        if self._api_made is None:
            from eruca.aio.cluster.delivery_api import (
                DeliveryApi,  # needs the models, as admin does
            )

            self._api_made = DeliveryApi(
                self._context.held_transport,
                self._context.patient_transport,
                self.group,
                timeout=self._context.settings.timeout_seconds,
            )
        return self._api_made

    async def _targets(self, wait_seconds: float) -> list[_Target]:
        """Return the brokers to call, for each topic, the next one in turn first.

        If no broker is registered, wait for one, up to *wait_seconds*.

        Raises:
            TopicNotFoundError: A topic does not exist.
            NoLiveBrokerError: No broker was live in that time.
            NoRouteError: No live broker has any of the topics.
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
            raise NoRouteError(f"no live broker has readable queues of {topics}")
        self._turn += 1
        first = self._turn % len(targets)
        return targets[first:] + targets[:first]

    async def _warn_of_unused_start(self, targets: Sequence[_Target]) -> None:
        """Warn once if the group already exists; call this before the request that creates it."""
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
        """Call the brokers one after another until one has messages; return them."""
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
        statistics = self._context.statistics
        begun_at = time.monotonic()
        try:
            answer = await self._api.receive(url, request)
        except ErucaError:
            failure = Sums(call_count=1, failed_count=1)
            statistics.add("pull", target.topic, self.group, failure)
            raise
        now = time.monotonic()
        if count := len(answer.deliveries):
            statistics.add_call("pull", target.topic, self.group, count, begun_at)
        try:
            return [
                delivery_of(wire, target.broker_name, invisible_seconds, now=now)
                for wire in answer.deliveries
            ]
        except ValueError as error:
            raise TransportError(f"{url}: the deliveries are invalid: {error}") from error

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
        check_argument("deliveries", delivery, Delivery)  # a generator can be read only once: here
        by_broker[delivery.broker_name].append(delivery)
    return by_broker


def _parts(deliveries: list[Delivery]) -> Iterable[list[str]]:
    for first in range(0, len(deliveries), HANDLE_COUNT_MAX):
        yield [one.handle for one in deliveries[first : first + HANDLE_COUNT_MAX]]
