"""Attempts until the deadline, for batches and half messages.

Each attempt reads the route, chooses the next queue, avoids slow and failed brokers, and reports
its outcome to the fault table. Between two attempts the route is refreshed and a pause passes. The
sender decides whether there is another attempt, and where it may go.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final

from eruca.aio.cluster.name_servers import SETTLING_PAUSE_SECONDS, SETTLING_PAUSE_SECONDS_MAX
from eruca.aio.http.transport import ConnectTimeoutError, NotConnectedError
from eruca.contract.errors import (
    AccessError,
    ClosedError,
    DiskFullError,
    ErucaError,
    NameServerSettlingError,
    NameServersUnreachableError,
    NoCredentialsError,
    NoLiveBrokerError,
    NoRouteError,
    NotEnoughReplicasError,
    NotReadyError,
    OverloadedError,
    PermissionDeniedError,
    QueueNotFoundError,
    QuotaExceededError,
    RefusedError,
    RequestError,
    TimeoutExpiredError,
    TopicNotFoundError,
)
from eruca.core.pauses import doubled
from eruca.core.retry_policy import (
    MASTERLESS,
    Patience,
    Retry,
    is_brokers_fault,
    needs_route,
    next_attempt,
    was_reached,
)
from eruca.core.routing.counter import Counter
from eruca.core.routing.queue_choice import choose_queue

if TYPE_CHECKING:
    from eruca.aio.cluster.routes import Routes
    from eruca.core.messages.message_queue import MessageQueue
    from eruca.core.routing.latency_fault import FaultTable
    from eruca.core.routing.route_table import PublishView

_MASTER_AWAY: Final = (NotConnectedError, ConnectTimeoutError, NotReadyError, *MASTERLESS)
"""After these errors nothing is stored, and a replica may become master within seconds."""
NOT_TAKEN: Final = (*_MASTER_AWAY, OverloadedError, DiskFullError, NotEnoughReplicasError)
"""After these errors nothing is stored: the broker did not accept the request."""
_NOT_STORED: Final = (
    AccessError,
    NoCredentialsError,
    RequestError,
    RefusedError,
    NoRouteError,
    NameServersUnreachableError,
    NameServerSettlingError,
    NoLiveBrokerError,
    *NOT_TAKEN,
)
_ROUTE_ERRORS: Final = (
    NoRouteError,
    NameServersUnreachableError,
    NameServerSettlingError,
    NoLiveBrokerError,
    NoCredentialsError,
    ClosedError,
)
_JITTER_MIN: Final = 0.75  # of a pause until there is a master
_PLACE_ERRORS: Final = (TopicNotFoundError, QueueNotFoundError, PermissionDeniedError)
"""These errors refuse a message only at one broker and at this moment."""


class Attempts:
    """The attempts of one producer.

    Args:
        routes: The client's.
        faults: The producer's fault table; None while latency fault tolerance is off.
    """

    def __init__(self, routes: Routes, faults: FaultTable | None) -> None:
        self._routes = routes
        self._faults = faults
        self._epochs: dict[str, int] = {}  # of brokers with replicas, as last seen
        self._counter = Counter(random.getrandbits(31))

    def known_view(self, topic: str) -> PublishView | None:
        """Return the queues for messages of *topic* if they are known; None: see :meth:`view`."""
        view = self._routes.cached_publish_view(topic)
        return view if view is not None and view.queues else None

    async def view(self, topic: str, deadline: float) -> PublishView:
        """Return the queues for messages of *topic*, as :func:`view_before` does."""
        return await view_before(self._routes, topic, deadline)

    def choose(
        self, view: PublishView, last_broker: str | None, patience: Patience
    ) -> MessageQueue:
        """Return the next queue, after an attempt at *last_broker*.

        Raises:
            NoRouteError: No live broker accepts messages of the topic.
        """
        if not view.queues:
            raise NoRouteError(f"every broker of topic {view.topic} is away")
        self._forgive(view)
        now = time.monotonic()
        return choose_queue(
            patience.queues(view.queues, now),
            self._counter,
            now_ms=now * 1000,
            last_broker=last_broker,
            faults=self._faults,
        ).queue

    async def view_with(self, queue: MessageQueue, deadline: float) -> PublishView:
        """Return the queues once they include a missed *queue*, or at the deadline."""
        return await self._routes.wait_for(queue, remaining_seconds(deadline))

    def report(self, queue: MessageQueue, began_at: float, error: ErucaError | None) -> None:
        """Report the outcome of an attempt that began at *began_at*, by the monotonic clock."""
        if self._faults is not None:
            now = time.monotonic()
            self._faults.update(
                queue.broker_name,
                (now - began_at) * 1000,
                now * 1000,
                failed=error is not None and is_brokers_fault(error),
                reachable=error is None or was_reached(error),
            )

    async def until_next(
        self, topic: str, retry: Retry, error: ErucaError, deadline: float
    ) -> None:
        """Wait until the next attempt that *retry* allows after *error*."""
        if retry.refresh_route and needs_route(error):
            # The next attempt needs the route, or raises because of the deadline.
            within = remaining_seconds(deadline, or_less=True)
            await self._routes.refresh(topic, within_seconds=within)
        elif retry.refresh_route:
            self._routes.refresh_soon(topic)
        if retry.wait_seconds:
            await asyncio.sleep(retry.wait_seconds)

    def _forgive(self, view: PublishView) -> None:
        """Drop the faults of brokers that have a new master: they were its predecessor's."""
        for name, epoch in view.epochs.items():
            if name in view.urls and epoch > self._epochs.get(name, 0):
                self._epochs[name] = epoch
                if self._faults is not None:
                    self._faults.remove(name)


async def view_before(routes: Routes, topic: str, deadline: float) -> PublishView:
    """Return the queues for messages of *topic*, at once if they are known.

    If a name server has just started, no broker is live, or replicas elect a master, this waits up
    to the deadline.

    Raises:
        TimeoutExpiredError: The deadline passed before a name server returned a route.
        ErucaError: As :meth:`eruca.aio.cluster.routes.Routes.publish_view` documents.
    """
    view = routes.cached_publish_view(topic)
    if view is not None and view.queues:
        return view
    brokerless: NoLiveBrokerError | NoRouteError | None = None
    try:
        async with asyncio.timeout(remaining_seconds(deadline)):
            for attempt in count():
                try:
                    view = await routes.publish_view(topic)
                    if view.key_queues:
                        return view
                    brokerless = _without_master(view)
                except NameServerSettlingError:
                    brokerless = None
                except NoLiveBrokerError as error:
                    brokerless = error
                pause = doubled(SETTLING_PAUSE_SECONDS, attempt, SETTLING_PAUSE_SECONDS_MAX)
                await routes.changed(topic, within_seconds=pause)  # a new master, for one
        raise AssertionError("count() never ends")
    except TimeoutError:
        if brokerless is not None:
            raise brokerless from None
        if (settling := routes.settling) is not None:
            raise NameServerSettlingError(
                settling.detail,
                fix=settling.fix,
                retry_after_seconds=settling.retry_after_seconds,
            ) from None
        raise TimeoutExpiredError(
            f"no name server returned the route of {topic} before the deadline: {routes.silence}",
            fix="check ERUCA_NAMESRV_URLS, and that a name server runs at each URL",
        ) from None


def _without_master(view: PublishView) -> NoRouteError:
    names = ", ".join(sorted(view.epochs.keys() - view.urls.keys()))
    return NoRouteError(
        f"no broker of topic {view.topic} has a master now: {names}",
        fix="send again: replicas elect a master within seconds; if they do not: eruca broker list",
    )


def next_retry(
    error: ErucaError,
    *,
    attempt: int,
    attempts_max: int,
    deadline: float,
    last_broker: str | None,
    next_brokers: Collection[str],
    patience: Patience,
    awaits_master: bool = False,
) -> Retry | None:
    """Return the plan for the next attempt; None if there is none.

    Args:
        error: The error of this attempt.
        attempt: Its number, from 1.
        attempts_max: Maximum number of attempts.
        deadline: Of all attempts, by the loop's clock.
        last_broker: The broker of this attempt; None if no broker was known.
        next_brokers: The brokers that the next attempt can use, as far as they are known.
        patience: The pauses that brokers have asked for; *error* is added.
        awaits_master: Whether the attempt does not count, see :func:`is_awaited`.
    """
    now = time.monotonic()
    patience.note(last_broker, error, now)
    patience_seconds = patience.seconds(next_brokers or (last_broker,), now)
    retry = next_attempt(
        error,
        attempt=attempt,
        attempts_max=attempts_max,
        remaining_seconds=remaining_seconds(deadline, or_less=True),
        has_other_broker=any(
            name != last_broker and not patience.is_asked(name, now) for name in next_brokers
        ),
        patience_seconds=patience_seconds,
        awaits_master=awaits_master,
    )
    if retry is not None and awaits_master:
        # Not all senders at the same moment, which may be the new master's first.
        shorter = retry.wait_seconds * random.uniform(_JITTER_MIN, 1.0)
        retry = replace(retry, wait_seconds=max(shorter, patience_seconds))
    return retry


def remaining_seconds(deadline: float, *, or_less: bool = False) -> float:
    """Return the seconds until the deadline; raise if it has passed, unless *or_less*."""
    remaining = deadline - asyncio.get_running_loop().time()
    if remaining <= 0 and not or_less:
        raise TimeoutExpiredError("the deadline passed before the message could be sent")
    return remaining


def is_awaited(view: PublishView | None, queue: MessageQueue | None, error: ErucaError) -> bool:
    """Tell whether an attempt at *queue* that failed with *error* does not count.

    In an ordered topic a sharding key has only one queue. If the queue's broker did not receive the
    message, it may return at any moment, so attempts continue until the deadline. So they do if the
    broker has replicas and its master is away. And so they do while the sender has used up its
    quota: it sends as fast as it may.
    """
    if isinstance(error, QuotaExceededError):
        return True
    if view is None or queue is None:
        return False
    if isinstance(error, NoRouteError):
        return view.awaits_master
    if queue in view.order and isinstance(error, NOT_TAKEN):
        return True
    return view.has_successor(queue.broker_name) and isinstance(error, _MASTER_AWAY)


def may_be_stored(error: ErucaError) -> bool:
    """Tell whether a request may be stored although its attempt failed with *error*."""
    return not isinstance(error, _NOT_STORED)


def is_raised_unchanged(error: ErucaError, failures: Sequence[tuple[str, ErucaError]]) -> bool:
    """Tell whether to raise *error*, the last of *failures*, as it is.

    If an earlier attempt may have stored the message, only a refusal of the message qualifies,
    because every broker would refuse it. Any other error would suggest that nothing is stored.
    """
    if isinstance(error, (*_ROUTE_ERRORS, *_PLACE_ERRORS)):
        return not any(may_be_stored(failure) for _, failure in failures[:-1])
    return not error.retryable


def tried(failures: Sequence[tuple[str, ErucaError]]) -> tuple[str, str]:
    """Return the number of failed attempts, and a description of each with its broker."""
    count = "1 attempt" if len(failures) == 1 else f"{len(failures)} attempts"
    hows = dict.fromkeys(f"{broker}: {failure.detail}" for broker, failure in failures)
    return count, "; ".join(hows)
