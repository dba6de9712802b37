"""The client: one per application, from which everything else is made.

Making a client does nothing yet: connections are opened when they are needed, and what only some
programs use (httpx, the models of routes and of administration) is loaded when it is.

Concurrency rule: belongs to the event loop that first uses it, and to the process: after a fork
the child makes its own.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from eruca.aio.cluster.client_context import ClientContext
from eruca.aio.http.credentials import credentials_of
from eruca.aio.producer import AsyncProducer
from eruca.aio.pull_consumer import AsyncPullConsumer
from eruca.contract.limits import INVISIBLE_SECONDS_DEFAULT
from eruca.core.checked_arguments import checked_calls
from eruca.core.client_settings import ClientSettings
from eruca.core.consuming.pull_positions import OutOfRangePolicy, StartPosition
from eruca.core.consuming.pull_settings import (
    COMMIT_SECONDS_DEFAULT,
    PREFETCH_COUNT_DEFAULT,
    PREFETCH_SIZE_DEFAULT,
    PullSettings,
)
from eruca.core.consuming.push_options import (
    LIMITS_DEFAULT,
    LISTENERS_DEFAULT,
    MEMBERSHIP_DEFAULT,
    OFFSETS_DEFAULT,
    RETRIES_DEFAULT,
    Limits,
    Listeners,
    Membership,
    Offsets,
    Retries,
)
from eruca.core.consuming.push_settings import (
    CONCURRENCY_DEFAULT,
    CONSUME_SECONDS_DEFAULT,
    STOP_SECONDS_DEFAULT,
    PushSettings,
)
from eruca.core.consuming.simple_settings import SimpleSettings
from eruca.core.filters.subscription_filter import Filter
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.producing.batching import BATCHING_DEFAULT, Batching
from eruca.core.producing.producer_settings import (
    BUFFER_BYTES_DEFAULT,
    COMPRESSION_BYTES_DEFAULT,
    RETRIES_MAX_DEFAULT,
    SEND_SECONDS_DEFAULT,
    ProducerSettings,
)
from eruca.core.routing.latency_fault import LatencyProfile

if TYPE_CHECKING:
    from eruca.aio.admin import AsyncAdmin
    from eruca.aio.http.transport import HttpTransport
    from eruca.aio.log_follower import AsyncLogFollower
    from eruca.aio.push_consumer import AsyncPushConsumer
    from eruca.aio.query import AsyncQuery
    from eruca.aio.simple_consumer import AsyncSimpleConsumer
    from eruca.aio.transaction_producer import AsyncTransactionProducer
    from eruca.core.producing.transaction_settings import CheckFunction

CHECK_CONCURRENCY_DEFAULT: Final = 16
DECISION_SECONDS_DEFAULT: Final = 5.0  # seconds, all attempts together


@checked_calls(late={"CheckFunction": "eruca.core.producing.transaction_settings"})
class AsyncClient:
    """A client of one cluster.

    Args:
        namesrv_urls: The name servers: one URL, several parted by ``;``, or a list. By default
            ``ERUCA_NAMESRV_URLS``, else ``http://127.0.0.1:9876``.
        network: Which of a broker's addresses to use, where it has several. By default
            ``ERUCA_NETWORK``, else ``default``.
        timeout_seconds: The time for a request that has no time-out of its own. By default
            ``ERUCA_TIMEOUT_SECONDS``, else 3.
        ssl_context: For ``https://`` URLs; by default the system's authorities are trusted.
        hot_transport: Carries sends and pulls; by default the SDK's own HTTP/1.1 client.
        transport: Carries the rest; by default httpx.

    Raises:
        ValidationError: A setting cannot be used; the error says where it came from.
    """

    def __init__(
        self,
        namesrv_urls: str | Iterable[str] | None = None,
        *,
        network: str | None = None,
        timeout_seconds: float | None = None,
        ssl_context: ssl.SSLContext | None = None,
        hot_transport: HttpTransport | None = None,
        transport: HttpTransport | None = None,
    ) -> None:
        settings = ClientSettings.resolve(
            os.environ, namesrv_urls=namesrv_urls, network=network, timeout_seconds=timeout_seconds
        )
        self._context = ClientContext(
            settings,
            credentials=credentials_of(os.environ, ssl_context=ssl_context),
            hot_transport=hot_transport,
            transport=transport,
        )
        self._admin: AsyncAdmin | None = None
        self._query: AsyncQuery | None = None

    @property
    def settings(self) -> ClientSettings:
        """The client's settings."""
        return self._context.settings

    @property
    def context(self) -> ClientContext:
        """The context that the client's producers and consumers share; for extensions."""
        return self._context

    @property
    def admin(self) -> AsyncAdmin:
        """Administration: topics, queues, groups, brokers, single messages."""
        from eruca.aio.admin import AsyncAdmin  # pydantic models: 0.2 s that senders need not spend

        if self._admin is None:
            self._admin = AsyncAdmin(self._context)
        return self._admin

    @property
    def query(self) -> AsyncQuery:
        """The query service: messages by id, key, tag and time, and what befell them."""
        from eruca.aio.query import AsyncQuery  # pydantic models, as above

        if self._query is None:
            self._query = AsyncQuery(self._context)
        return self._query

    def producer(
        self,
        group: str | None = None,
        *,
        idempotent: bool = False,
        latency_fault: bool | LatencyProfile = False,
        retries_max: int = RETRIES_MAX_DEFAULT,
        send_timeout_seconds: float = SEND_SECONDS_DEFAULT,
        batching: Batching = BATCHING_DEFAULT,
        buffer_bytes_max: int = BUFFER_BYTES_DEFAULT,
        compression_threshold_bytes: int | None = COMPRESSION_BYTES_DEFAULT,
    ) -> AsyncProducer:
        """Return a new producer.

        Args:
            group: The producer group, which transactions need.
            idempotent: Whether a retry may store nothing twice. Each batch then goes under an
                idempotency key, its first message's id, and once it may have been stored, it is
                tried again at the same broker alone, which knows: for as long as that cannot be
                reached, sending fails instead of going elsewhere. A key says what is in a batch:
                to send messages of your own ids again later, send them one at a time.
            latency_fault: Whether to avoid slow and failed brokers for a time, and by which
                table; if not, a retry merely goes to another broker than the one that failed.
            retries_max: Attempts after the first.
            send_timeout_seconds: The time for all attempts together.
            batching: How messages are gathered into batches.
            buffer_bytes_max: Bytes not yet acknowledged, beyond which sending waits.
            compression_threshold_bytes: Bodies of this size or more are compressed; None: never.
        """
        self._context.check_open()
        settings = ProducerSettings(
            group=group,
            idempotent=idempotent,
            latency_fault=latency_fault,
            retries_max=retries_max,
            send_timeout_seconds=send_timeout_seconds,
            batching=batching,
            buffer_bytes_max=buffer_bytes_max,
            compression_threshold_bytes=compression_threshold_bytes,
        )
        return self._context.adopt(AsyncProducer(self._context, settings))

    def transaction_producer(
        self,
        group: str,
        *,
        check: CheckFunction | None = None,
        check_concurrency: int = CHECK_CONCURRENCY_DEFAULT,
        checker_urls: str | Iterable[str] | None = None,
        latency_fault: bool | LatencyProfile = False,
        retries_max: int = RETRIES_MAX_DEFAULT,
        send_timeout_seconds: float = SEND_SECONDS_DEFAULT,
        decision_timeout_seconds: float = DECISION_SECONDS_DEFAULT,
    ) -> AsyncTransactionProducer:
        """Return a new transaction producer, whose messages are delivered if local work was done.

        Args:
            group: The producer group: any of its members may be asked about the others'
                transactions, so they share what *check* looks at.
            check: Called with a transaction that nobody has decided; says what became of its local
                work. Plain functions run in threads. None: this producer answers no checks, since
                others of its group do, or a webhook.
            check_concurrency: Checks in hand at a time.
            checker_urls: The transaction checkers; by default ``ERUCA_TXN_CHECKER_URLS``, else
                those that the name servers know.
            latency_fault: Whether to avoid slow and failed brokers for a time, and by which table.
            retries_max: Attempts after the first to store a half message, where none was stored.
            send_timeout_seconds: The time for all attempts to store a half message.
            decision_timeout_seconds: The time to tell a decision; then it is left to the checker.
        """
        from eruca.aio.transaction_producer import (  # needs the models, as admin does
            AsyncTransactionProducer,
        )
        from eruca.core.producing.transaction_settings import TransactionSettings

        self._context.check_open()
        settings = TransactionSettings.resolve(
            os.environ,
            group,
            check=check,
            check_concurrency=check_concurrency,
            checker_urls=checker_urls,
            latency_fault=latency_fault,
            retries_max=retries_max,
            send_timeout_seconds=send_timeout_seconds,
            decision_timeout_seconds=decision_timeout_seconds,
        )
        return self._context.adopt(AsyncTransactionProducer(self._context, settings))

    def pull_consumer(
        self,
        group: str | None = None,
        *,
        topics: str | Iterable[str] = (),
        queues: Iterable[MessageQueue] = (),
        filter: Filter | Mapping[str, Filter] = "*",
        start: StartPosition | datetime | None = None,
        on_offset_out_of_range: OutOfRangePolicy = "error",
        commit_seconds: float | None = COMMIT_SECONDS_DEFAULT,
        prefetch_count_max: int = PREFETCH_COUNT_DEFAULT,
        prefetch_bytes_max: int = PREFETCH_SIZE_DEFAULT,
        wait_for_topics: bool = False,
    ) -> AsyncPullConsumer:
        """Return a new pull consumer, which reads the queues it is told to, alone.

        Args:
            group: Whose offsets are read and committed; None keeps no offsets.
            topics: Read all queues of these, those that come later included.
            queues: Read these; instead of *topics*.
            filter: Tags to let through, ``"a || b"``, or a condition over properties,
                ``eruca.sql("price > 20")``; or one of these for each topic.
            start: Where to begin in a queue for which *group* has no offset: ``earliest``, as by
                default, ``latest``, a time, or ``committed``, which refuses to begin anywhere else.
                In a queue that comes later, ``latest`` is when the consumer began. A warning says
                so if it is given and the group's offset comes first.
            on_offset_out_of_range: What to do where retention has deleted what comes next, or the
                queue ends before: go to the ``earliest``, ``latest`` or ``nearest`` message, or
                raise an ``error``, because going on would skip or repeat messages unnoticed.
            commit_seconds: How often offsets are committed while polling; None for only by
                ``commit``. Without a group nothing is committed.
            prefetch_count_max: Messages kept ready per queue.
            prefetch_bytes_max: Bytes kept ready in all.
            wait_for_topics: Whether a topic that does not exist is waited for, or is an error.
        """
        self._context.check_open()
        settings = PullSettings.resolve(
            group,
            topics=topics,
            queues=queues,
            filter=filter,
            start=start,
            on_offset_out_of_range=on_offset_out_of_range,
            commit_seconds=commit_seconds,
            prefetch_count_max=prefetch_count_max,
            prefetch_bytes_max=prefetch_bytes_max,
            wait_for_topics=wait_for_topics,
        )
        return self._context.adopt(AsyncPullConsumer(self._context, settings))

    def push_consumer(
        self,
        group: str,
        *,
        message_model: Literal["clustering", "broadcasting"] = "clustering",
        ordered: bool = False,
        start: Literal["earliest", "latest"] | datetime | None = None,
        concurrency: int = CONCURRENCY_DEFAULT,
        batch_count_max: int = 1,
        consume_timeout_seconds: float = CONSUME_SECONDS_DEFAULT,
        stop_timeout_seconds: float = STOP_SECONDS_DEFAULT,
        client_id: str | None = None,
        wait_for_topics: bool = False,
        retries: Retries = RETRIES_DEFAULT,
        limits: Limits = LIMITS_DEFAULT,
        membership: Membership = MEMBERSHIP_DEFAULT,
        offsets: Offsets = OFFSETS_DEFAULT,
        listeners: Listeners = LISTENERS_DEFAULT,
    ) -> AsyncPushConsumer:
        """Return a new push consumer, which shares a group's queues and calls handlers.

        Args:
            group: The consumer group.
            message_model: ``clustering``: each message is handled by one member of the group;
                ``broadcasting``: by every member, once, without retries.
            ordered: Whether each queue's messages are handled one after the other.
            start: Where the group begins in a topic, if this member creates the group; in
                broadcasting, where a client begins that has no offsets: by default ``latest``.
            concurrency: Handlers at a time.
            batch_count_max: Messages for one call; if more than 1, handlers get lists.
            consume_timeout_seconds: The time for a handler. An async one is cancelled then, and has
                failed; a thread goes on, but its messages are sent back, or, ordered, wait for it.
                An async one that blocks the event loop for longer loses its queues.
            stop_timeout_seconds: The time for handlers to end when the consumer stops.
            client_id: Its name in the group; by default one of its own. Broadcasting keeps its
                offsets by this name, and so needs one that stays.
            wait_for_topics: Whether a topic that does not exist is waited for, or is an error.
            retries: What follows when a handler fails.
            limits: How much is held before pulling stops.
            membership: How the consumer takes part in its group.
            offsets: How offsets are kept.
            listeners: Functions called when queues come and go, and for damaged messages.
        """
        from eruca.aio.push_consumer import AsyncPushConsumer  # needs the models, as admin does

        self._context.check_open()
        settings = PushSettings(
            group=group,
            message_model=message_model,
            ordered=ordered,
            start=start,
            concurrency=concurrency,
            batch_count_max=batch_count_max,
            consume_timeout_seconds=consume_timeout_seconds,
            stop_timeout_seconds=stop_timeout_seconds,
            client_id=client_id,
            wait_for_topics=wait_for_topics,
            retries=retries,
            limits=limits,
            membership=membership,
            offsets=offsets,
            listeners=listeners,
        )
        return self._context.adopt(AsyncPushConsumer(self._context, settings))

    def simple_consumer(
        self,
        group: str,
        topics: str | Iterable[str],
        *,
        filter: Filter | Mapping[str, Filter] = "*",
        start: Literal["earliest", "latest"] | datetime | None = None,
        invisible_seconds: float = INVISIBLE_SECONDS_DEFAULT,
    ) -> AsyncSimpleConsumer:
        """Return a new simple consumer, which gets messages for a time and finishes each by itself.

        Args:
            group: The consumer group.
            topics: What to receive: one topic or several.
            filter: Tags to let through, ``"a || b"``, or a condition over properties,
                ``eruca.sql("price > 20")``; or one of these for each topic. A group has one filter
                for a topic.
            start: Where the group begins in a topic, if this creates it; by default ``latest``.
            invisible_seconds: For how long nobody else gets a message that was received.
        """
        from eruca.aio.simple_consumer import AsyncSimpleConsumer  # late, as the push consumer

        self._context.check_open()
        settings = SimpleSettings.resolve(
            group, topics=topics, filter=filter, start=start, invisible_seconds=invisible_seconds
        )
        return self._context.adopt(AsyncSimpleConsumer(self._context, settings))

    def log_follower(
        self, broker_name: str, *, from_offset: int | Literal["earliest", "latest"] = "earliest"
    ) -> AsyncLogFollower:
        """Return what reads a broker's whole log, record by record, from an offset on.

        Args:
            broker_name: Whose log.
            from_offset: A record's log offset, the log's end, ``earliest`` or ``latest``.
        """
        from eruca.aio.log_follower import AsyncLogFollower  # needs the models, as admin does

        self._context.check_open()
        return self._context.adopt(
            AsyncLogFollower(self._context, broker_name, from_offset=from_offset)
        )

    async def close(self, *, drain: bool = True) -> None:
        """Close what was made from this client, then the connections.

        Producers send what they still have first, unless *drain* is false.
        """
        await self._context.close(drain=drain, failed=False)

    async def __aenter__(self) -> Self:
        self._context.check_open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._context.close(drain=True, failed=error is not None)
