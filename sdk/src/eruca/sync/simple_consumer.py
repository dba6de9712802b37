"""The simple consumer: leases single messages, without queues, members or a session.

Generated from ``eruca.aio.simple_consumer`` by ``sdk/tools/generate_sync.py``; change that one.
See :mod:`eruca.sync.portal` for its design and its rules for threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from eruca.aio.simple_consumer import AsyncSimpleConsumer
from eruca.core.consuming.simple_settings import RECEIVE_COUNT_DEFAULT, RECEIVE_SECONDS_DEFAULT
from eruca.sync.portal import Portal, read_here

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from types import TracebackType

    from eruca.core.consuming.delivery import Delivery
    from eruca.sync.handling import Handling


class SimpleConsumer:
    """Leases messages and acknowledges each by itself; made by :meth:`Client.simple_consumer`.

    Any number of threads may use it at the same time.
    """

    def __init__(self, portal: Portal, twin: AsyncSimpleConsumer) -> None:
        self._portal = portal
        self._twin = twin

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._twin.group

    def receive(
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
        return self._portal.call(
            self._twin.receive, count_max, wait_seconds, invisible_seconds=invisible_seconds
        )

    def ack(self, deliveries: Delivery | Iterable[Delivery]) -> None:
        """Acknowledge messages: they are not redelivered. At each broker all of them or none.

        Raises:
            StaleHandleError: One was redelivered, or is already acknowledged.
            ExpiredHandleError: The lease of one has expired; it is redelivered.
            ErucaError: A broker did not answer; its messages may be redelivered.
        """
        self._portal.call(self._twin.ack, read_here(deliveries))

    def nack(
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
        self._portal.call(
            self._twin.nack,
            read_here(deliveries),
            delay_seconds=delay_seconds,
            reason=reason,
            error=error,
        )

    def extend(
        self, deliveries: Delivery | Iterable[Delivery], *, invisible_seconds: float | None = None
    ) -> datetime:
        """Extend leases, counted from now; return the time when the first of them expires.

        Args:
            deliveries: The messages; at least one.
            invisible_seconds: New length of the lease; default: as received.

        Raises:
            StaleHandleError, ExpiredHandleError: This consumer's lease of one has ended.
            ErucaError: A broker did not answer.
        """
        return self._portal.call(
            self._twin.extend, read_here(deliveries), invisible_seconds=invisible_seconds
        )

    def handling(self, delivery: Delivery) -> Handling:
        """Return a context that extends a message's lease while its block runs.

        If the block succeeds, the message is acknowledged. If it raises, the message is rejected.
        """
        from eruca.sync.handling import Handling  # as the async one, late

        return Handling(self._portal, self._portal.run(self._twin.handling, delivery))

    def close(self) -> None:
        """Stop receiving. Unacknowledged messages are redelivered when their leases expire."""
        self._portal.leave(self._twin.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.leave(self._twin.__aexit__, kind, error, traceback)
