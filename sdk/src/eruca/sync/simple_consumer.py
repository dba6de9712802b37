"""The simple consumer: messages one by one, without queues, members or a session.

Generated from ``eruca.aio.simple_consumer`` by ``sdk/tools/generate_sync.py``; change that one.
How it works and which threads may do what is said in :mod:`eruca.sync.portal`.
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
    """Receives messages and finishes each by itself; made by :meth:`Client.simple_consumer`.

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
        return self._portal.call(
            self._twin.receive, count_max, wait_seconds, invisible_seconds=invisible_seconds
        )

    def ack(self, deliveries: Delivery | Iterable[Delivery]) -> None:
        """Finish messages: they do not come again. At each broker all of them, or none.

        Raises:
            StaleHandleError: One is somebody else's by now, or done.
            ExpiredHandleError: The time of one was over; it comes again.
            ErucaError: A broker did not answer; its messages may come again.
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
        """Keep messages for longer, from now on; return until when all of them are kept.

        Args:
            deliveries: The messages; at least one.
            invisible_seconds: For how long; by default as they were received with.

        Raises:
            StaleHandleError, ExpiredHandleError: One was not this consumer's any more.
            ErucaError: A broker did not answer.
        """
        return self._portal.call(
            self._twin.extend, read_here(deliveries), invisible_seconds=invisible_seconds
        )

    def handling(self, delivery: Delivery) -> Handling:
        """Return a context that keeps a message while its block runs, and finishes it at the end.

        Acknowledged where the block ends well; given up where it raises.
        """
        from eruca.sync.handling import Handling  # as the async one, late

        return Handling(self._portal, self._portal.run(self._twin.handling, delivery))

    def close(self) -> None:
        """Stop receiving. What was received and not finished comes again when its time is over."""
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
