"""The client: one per application, from which everything else is made.

Making a client does nothing yet: connections are opened when they are needed, and what only some
programs use (httpx, the models of routes and of administration) is loaded when it is.

Concurrency rule: belongs to the event loop that first uses it, and to the process: after a fork
the child makes its own.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from eruca.aio.cluster.client_context import ClientContext
from eruca.aio.http.credentials import credentials_of
from eruca.aio.producer import (
    BUFFER_SIZE_DEFAULT,
    COMPRESSION_THRESHOLD_DEFAULT,
    RETRIES_DEFAULT,
    SEND_TIMEOUT_DEFAULT,
    AsyncProducer,
)
from eruca.aio.pull_consumer import AsyncPullConsumer
from eruca.contract.limits import INVISIBLE_SECONDS_DEFAULT, SESSION_SECONDS_DEFAULT
from eruca.core.checked_arguments import checked_calls
from eruca.core.client_settings import ClientSettings
from eruca.core.consuming.flow_control import COUNT_MAX_DEFAULT, SIZE_MAX_DEFAULT, SPAN_MAX_DEFAULT
from eruca.core.consuming.orderly_result import SUSPEND_SECONDS_DEFAULT
from eruca.core.consuming.pull_positions import OutOfRangePolicy, StartPosition
from eruca.core.consuming.pull_settings import (
    COMMIT_SECONDS_DEFAULT,
    PREFETCH_COUNT_DEFAULT,
    PREFETCH_SIZE_DEFAULT,
    PullSettings,
)
from eruca.core.consuming.push_settings import (
    AVERAGELY,
    CONCURRENCY_DEFAULT,
    CONSUME_SECONDS_DEFAULT,
    HELD_SIZE_MAX_DEFAULT,
    PUSH_COMMIT_SECONDS_DEFAULT,
    STOP_SECONDS_DEFAULT,
    PushSettings,
)
from eruca.core.consuming.simple_settings import SimpleSettings
from eruca.core.filters.subscription_filter import Filter
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage
from eruca.core.producing.batching import (
    BATCH_COUNT_DEFAULT,
    BATCH_SIZE_DEFAULT,
    IN_FLIGHT_DEFAULT,
    LINGER_MS_DEFAULT,
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
    from eruca.core.allocation import AllocationStrategy
    from eruca.core.producing.transaction_settings import CheckFunction

CHECK_CONCURRENCY_DEFAULT: Final = 16
DECISION_TIMEOUT_DEFAULT: Final = 5.0  # seconds, all attempts together


@checked_calls(
    late={
        "AllocationStrategy": "eruca.core.allocation",
        "CheckFunction": "eruca.core.producing.transaction_settings",
    }
)
class AsyncClient:
    """A client of one cluster.

    Args:
        namesrv_urls: The name servers: one URL, several parted by ``;``, or a list. By default
            ``ERUCA_NAMESRV_URLS``, else ``http://127.0.0.1:9876``.
        network: Which of a broker's addresses to use, where it has several. By default
            ``ERUCA_NETWORK``, else ``default``.
        timeout: Seconds for a request that has no time-out of its own. By default
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
        timeout: float | None = None,
        ssl_context: ssl.SSLContext | None = None,
        hot_transport: HttpTransport | None = None,
        transport: HttpTransport | None = None,
    ) -> None:
        settings = ClientSettings.resolve(
            os.environ, namesrv_urls=namesrv_urls, network=network, timeout=timeout
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
        """What the client works with."""
        return self._context.settings

    @property
    def context(self) -> ClientContext:
        """What all that is made from the client shares; for those who build on it."""
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
        latency_fault: bool | LatencyProfile = False,
        linger_ms: float = LINGER_MS_DEFAULT,
        batch_max_count: int = BATCH_COUNT_DEFAULT,
        batch_max_bytes: int = BATCH_SIZE_DEFAULT,
        max_in_flight: int = IN_FLIGHT_DEFAULT,
        buffer_max_bytes: int = BUFFER_SIZE_DEFAULT,
        compression_threshold: int | None = COMPRESSION_THRESHOLD_DEFAULT,
        retries: int = RETRIES_DEFAULT,
        send_timeout: float = SEND_TIMEOUT_DEFAULT,
        idempotent: bool = False,
    ) -> AsyncProducer:
        """Return a new producer.

        Args:
            group: The producer group, which transactions need.
            latency_fault: Whether to avoid slow and failed brokers for a time, and by which
                table; if not, a retry merely goes to another broker than the one that failed.
            linger_ms: How long a batch may wait for company while another is under way.
            batch_max_count: Messages in a batch.
            batch_max_bytes: Bytes in a batch; a larger message travels alone.
            max_in_flight: Batches under way at a time, per topic.
            buffer_max_bytes: Bytes not yet acknowledged, beyond which sending waits.
            compression_threshold: Bytes of a body from which it is compressed; None for never.
            retries: Attempts after the first.
            send_timeout: Seconds for all attempts together.
            idempotent: Whether a retry may store nothing twice. Each batch then goes under an
                idempotency key, its first message's id, and once it may have been stored, it is
                tried again at the same broker alone, which knows: for as long as that cannot be
                reached, sending fails instead of going elsewhere. A key says what is in a batch:
                to send messages of your own ids again later, send them one at a time.
        """
        self._context.check_open()
        producer = AsyncProducer(
            self._context,
            group,
            latency_fault=latency_fault,
            linger_ms=linger_ms,
            batch_max_count=batch_max_count,
            batch_max_bytes=batch_max_bytes,
            max_in_flight=max_in_flight,
            buffer_max_bytes=buffer_max_bytes,
            compression_threshold=compression_threshold,
            retries=retries,
            send_timeout=send_timeout,
            idempotent=idempotent,
        )
        return self._context.adopt(producer)

    def transaction_producer(
        self,
        group: str,
        *,
        check: CheckFunction | None = None,
        check_concurrency: int = CHECK_CONCURRENCY_DEFAULT,
        checker_urls: str | Iterable[str] | None = None,
        latency_fault: bool | LatencyProfile = False,
        retries: int = RETRIES_DEFAULT,
        send_timeout: float = SEND_TIMEOUT_DEFAULT,
        decision_timeout: float = DECISION_TIMEOUT_DEFAULT,
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
            retries: Attempts after the first to store a half message, where none was stored.
            send_timeout: Seconds for all attempts to store a half message.
            decision_timeout: Seconds to tell a decision; then it is left to the checker.
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
            retries=retries,
            send_timeout=send_timeout,
            decision_timeout=decision_timeout,
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
        auto_commit_seconds: float | None = COMMIT_SECONDS_DEFAULT,
        prefetch_count: int = PREFETCH_COUNT_DEFAULT,
        prefetch_bytes: int = PREFETCH_SIZE_DEFAULT,
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
            auto_commit_seconds: How often offsets are committed while polling; None for only by
                ``commit``. Without a group nothing is committed.
            prefetch_count: Messages kept ready per queue.
            prefetch_bytes: Bytes kept ready in all.
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
            auto_commit_seconds=auto_commit_seconds,
            prefetch_count=prefetch_count,
            prefetch_bytes=prefetch_bytes,
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
        batch_max_count: int = 1,
        consume_timeout: float = CONSUME_SECONDS_DEFAULT,
        none_is_failure: bool = False,
        auto_commit: bool = True,
        retry_max_times: int | None = None,
        suspend_seconds: float = SUSPEND_SECONDS_DEFAULT,
        on_poison: Literal["block", "park_key"] = "block",
        queue_max_count: int = COUNT_MAX_DEFAULT,
        queue_max_bytes: int = SIZE_MAX_DEFAULT,
        max_bytes: int = HELD_SIZE_MAX_DEFAULT,
        max_span: int = SPAN_MAX_DEFAULT,
        strategy: AllocationStrategy = AVERAGELY,
        on_assigned: Callable[[list[MessageQueue]], object] | None = None,
        on_revoked: Callable[[list[MessageQueue]], object] | None = None,
        on_lost: Callable[[list[MessageQueue]], object] | None = None,
        on_damaged: Callable[[ReceivedMessage], object] | None = None,
        commit_seconds: float = PUSH_COMMIT_SECONDS_DEFAULT,
        session_seconds: float = SESSION_SECONDS_DEFAULT,
        stop_timeout: float = STOP_SECONDS_DEFAULT,
        client_id: str | None = None,
        is_static: bool = False,
        replaces_subscription_version: int | None = None,
        offsets_dir: str | None = None,
        wait_for_topics: bool = False,
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
            batch_max_count: Messages for one call; if more than 1, handlers get lists.
            consume_timeout: Seconds for a handler. An async one is cancelled then, and has
                failed; a thread goes on, but its messages are sent back, or, ordered, wait for it.
                An async one that blocks the event loop for longer loses its queues.
            none_is_failure: Whether a handler that returns None has failed, as in RocketMQ.
            auto_commit: Ordered: whether success commits; if not, COMMIT and ROLLBACK do.
            retry_max_times: Retries before a message is a dead letter; by default the group's.
            suspend_seconds: Ordered: before a failed message is tried again.
            on_poison: Ordered: while a message fails, ``block`` its queue, or ``park_key``: only
                the messages of its sharding key wait.
            queue_max_count: Messages held of a queue, on average over those of a broker: they are
                pulled together, and a queue may have the room that others leave.
            queue_max_bytes: Bytes held of one queue.
            max_bytes: Bytes held of all queues.
            max_span: Offsets between the first and the last message held of one queue.
            strategy: How queues are divided; the same for all members. By default averagely.
            on_assigned: Called with queues before they are read.
            on_revoked: Called with queues that are handed over, when their handlers have ended.
            on_lost: Called with queues that somebody else may have by now.
            on_damaged: Called with a message that its broker found damaged. No handler gets it: it
                is counted and logged, and a dead letter with reason ``damaged`` says where it lies
                and what is wrong. In broadcasting, which has no dead letters, it is skipped.
            commit_seconds: Between two commits of offsets; what a crash repeats. Costs one
                request, and one small record in the log, per broker and interval in which there
                was progress.
            session_seconds: Not heard from for so long, a member is out and its queues are free.
            stop_timeout: Seconds for handlers to end when the consumer stops.
            client_id: Its name in the group; by default one of its own. Broadcasting keeps its
                offsets by this name, and so needs one that stays.
            is_static: Whether a later process of this client id takes over at once.
            replaces_subscription_version: Cut the group over to this member's subscriptions, if
                theirs still have this version.
            offsets_dir: Broadcasting: where offsets are kept; by default ``ERUCA_OFFSETS_DIR``,
                else ``~/.eruca/offsets``.
            wait_for_topics: Whether a topic that does not exist is waited for, or is an error.
        """
        from eruca.aio.push_consumer import AsyncPushConsumer  # needs the models, as admin does

        self._context.check_open()
        settings = PushSettings(
            group=group,
            message_model=message_model,
            ordered=ordered,
            start=start,
            concurrency=concurrency,
            batch_max_count=batch_max_count,
            consume_timeout=consume_timeout,
            none_is_failure=none_is_failure,
            auto_commit=auto_commit,
            retry_max_times=retry_max_times,
            suspend_seconds=suspend_seconds,
            on_poison=on_poison,
            queue_max_count=queue_max_count,
            queue_max_bytes=queue_max_bytes,
            max_bytes=max_bytes,
            max_span=max_span,
            strategy=strategy,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
            on_damaged=on_damaged,
            commit_seconds=commit_seconds,
            session_seconds=session_seconds,
            stop_timeout=stop_timeout,
            client_id=client_id,
            is_static=is_static,
            replaces_subscription_version=replaces_subscription_version,
            offsets_dir=offsets_dir,
            wait_for_topics=wait_for_topics,
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
