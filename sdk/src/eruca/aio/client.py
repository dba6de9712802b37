"""The client: one per application; it makes producers, consumers and the admin API.

Making a client opens no connection; each is opened at its first use. Parts that only some programs
need (the models of routes and administration) are also loaded at their first use.

Concurrency rule: the client belongs to the event loop that first uses it, and to the process. After
a fork the child must make its own client.
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
from eruca.core.call_statistics import CallStatistics
from eruca.core.checked_arguments import check_argument, checked_calls
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
from eruca.core.credentials import Credentials, TlsFiles
from eruca.core.filters.subscription_filter import Filter
from eruca.core.interceptors import Interceptor, overriding
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
        namesrv_urls: The name servers: one URL, several separated by ``;``, or a list. Default:
            ``ERUCA_NAMESRV_URLS``, else ``http://127.0.0.1:9876``.
        network: The network whose broker addresses the client uses, if brokers have several.
            Default: ``ERUCA_NETWORK``, else ``default``.
        timeout_seconds: Timeout of a request that has none of its own. Default:
            ``ERUCA_TIMEOUT_SECONDS``, else 3.
        standby_from_bytes: Pull from a standby of a broker if the consumer is this many bytes
            behind there; 0: never. Default: ``ERUCA_STANDBY_FROM_BYTES``, else 1 GiB.
        credentials: The identity of the client: ``ApiKey``, ``ApiKeyFile`` or ``BearerTokens``.
            Default: ``ERUCA_API_KEY``, ``ERUCA_API_KEY_FILE`` or ``ERUCA_TOKEN_PROVIDER``, else
            requests are anonymous. They are sent to servers of the cluster only.
        tls_files: Files for ``https://`` URLs: authorities to trust, a client certificate. Default:
            ``ERUCA_TLS_CA_FILE``, ``ERUCA_TLS_CERT_FILE`` and ``ERUCA_TLS_KEY_FILE``, else trust
            the system's certificate authorities.
        ssl_context: For ``https://`` URLs, instead of files.
        hot_transport: Carries sends and pulls. Default: the SDK's own HTTP/1.1 client.
        transport: Carries all other requests. Default: likewise.
        interceptors: Code around every send, receive and handling; the first is the outermost.

    Raises:
        ValidationError: A setting is invalid; the error names the setting's source.
    """

    def __init__(
        self,
        namesrv_urls: str | Iterable[str] | None = None,
        *,
        network: str | None = None,
        timeout_seconds: float | None = None,
        standby_from_bytes: int | None = None,
        credentials: Credentials | None = None,
        tls_files: TlsFiles | None = None,
        ssl_context: ssl.SSLContext | None = None,
        hot_transport: HttpTransport | None = None,
        transport: HttpTransport | None = None,
        interceptors: Iterable[Interceptor] = (),
    ) -> None:
        settings = ClientSettings.resolve(
            os.environ,
            namesrv_urls=namesrv_urls,
            network=network,
            timeout_seconds=timeout_seconds,
            standby_from_bytes=standby_from_bytes,
        )
        self._context = ClientContext(
            settings,
            credentials=credentials_of(
                os.environ, given=credentials, tls_files=tls_files, ssl_context=ssl_context
            ),
            hot_transport=hot_transport,
            transport=transport,
        )
        self._admin: AsyncAdmin | None = None
        self._query: AsyncQuery | None = None
        self._interceptors: tuple[Interceptor, ...] = ()
        check_argument("interceptors", interceptors, Iterable)
        for place, interceptor in enumerate(interceptors):
            check_argument(f"interceptors[{place}]", interceptor, Interceptor)
            self._interceptors += (interceptor,)

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
        # pydantic models: 0.2 s, which a sender does not need
        from eruca.aio.admin import AsyncAdmin

        if self._admin is None:
            self._admin = AsyncAdmin(self._context)
        return self._admin

    @property
    def query(self) -> AsyncQuery:
        """The query service: messages by id, key, tag and time, and their history."""
        from eruca.aio.query import AsyncQuery  # pydantic models, as above

        if self._query is None:
            self._query = AsyncQuery(self._context)
        return self._query

    def add_interceptor(self, interceptor: Interceptor) -> None:
        """Surround the calls of everything that this client makes from now on.

        Args:
            interceptor: Becomes the innermost one.
        """
        self._interceptors += (interceptor,)

    def stats(self) -> tuple[CallStatistics, ...]:
        """Return the rates, times and failures of this client's sends, pulls and handlers.

        There is one entry for each operation, topic and group: of the last minute, of the last hour
        and since the start. Above 1 000 of them, further topics are counted together.
        """
        return self._context.statistics.all()

    def producer(
        self,
        group: str | None = None,
        *,
        idempotent: bool = False,
        copies: int = 1,
        latency_fault: bool | LatencyProfile = False,
        retries_max: int = RETRIES_MAX_DEFAULT,
        send_timeout_seconds: float = SEND_SECONDS_DEFAULT,
        batching: Batching = BATCHING_DEFAULT,
        buffer_bytes_max: int = BUFFER_BYTES_DEFAULT,
        compression_threshold_bytes: int | None = COMPRESSION_BYTES_DEFAULT,
    ) -> AsyncProducer:
        """Return a new producer.

        Args:
            group: The producer group; only transactions need it.
            idempotent: Whether the brokers prevent duplicates of a retried batch. Each batch
                carries an idempotency key, the id of its first message. If the broker may have
                stored the batch, the producer retries only at that broker. While that broker is
                unreachable, the send fails and does not fall back to another broker. The key
                identifies the batch's content: to repeat messages with your own ids later, send
                them one at a time.
            copies: Least number of replicas in sync, the master included, without which a broker
                stores nothing. A message is acknowledged once all replicas in sync hold it.
            latency_fault: Whether to avoid slow and failed brokers for a time, and by which table.
                If false, only a retry avoids the broker that failed.
            retries_max: Maximum number of retries after the first attempt.
            send_timeout_seconds: Time limit for all attempts together. A broker's replicas elect a
                new master within 5 to 6 seconds; with a shorter limit, sends fail meanwhile.
            batching: How the producer groups messages into batches.
            buffer_bytes_max: Maximum number of unacknowledged bytes; sending waits at this limit.
            compression_threshold_bytes: Compress bodies of this size or larger; None: never.
        """
        self._context.check_open()
        settings = ProducerSettings(
            group=group,
            idempotent=idempotent,
            copies=copies,
            latency_fault=latency_fault,
            retries_max=retries_max,
            send_timeout_seconds=send_timeout_seconds,
            batching=batching,
            buffer_bytes_max=buffer_bytes_max,
            compression_threshold_bytes=compression_threshold_bytes,
        )
        if interceptors := overriding(self._interceptors, "sending"):
            from eruca.aio.intercepting.producer import InterceptedProducer

            return self._context.adopt(InterceptedProducer(self._context, settings, interceptors))
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
        await_decisions: bool = True,
    ) -> AsyncTransactionProducer:
        """Return a new transaction producer: a message is delivered if its local work commits.

        Args:
            group: The producer group. Any member may have to answer for another member's
                transaction, so all members must share the data that *check* reads.
            check: Called with an undecided transaction; returns the outcome of its local work.
                Plain functions run in threads. None: this producer answers no checks; other members
                of the group or a webhook do.
            check_concurrency: Maximum number of checks at a time.
            checker_urls: The transaction checkers. Default: ``ERUCA_TXN_CHECKER_URLS``, else the
                ones that the name servers know.
            latency_fault: Whether to avoid slow and failed brokers for a time, and by which table.
            retries_max: Maximum number of retries for a half message that no broker has stored.
            send_timeout_seconds: Time limit for all attempts to store a half message.
            decision_timeout_seconds: Time limit for sending a decision; after it, the checker
                decides.
            await_decisions: Whether a commit or rollback returns only when the broker has stored
                it. If not, it returns at once, as RocketMQ's does: it is faster, and a refusal is
                only logged. If the process ends before a decision is sent, the checker asks for it,
                so *check* must find it.
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
            await_decisions=await_decisions,
        )
        if interceptors := overriding(self._interceptors, "sending"):
            from eruca.aio.intercepting.transaction_producer import InterceptedTransactionProducer

            return self._context.adopt(
                InterceptedTransactionProducer(self._context, settings, interceptors)
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
        """Return a new pull consumer, which reads its queues alone, without the rest of a group.

        Args:
            group: The group whose offsets are read and committed; None: no offsets are kept.
            topics: Read all queues of these topics, including queues that are added later.
            queues: Read these queues; excludes *topics*.
            filter: Tags, ``"a || b"``, or a condition over properties, ``eruca.sql("price > 20")``;
                or one of these for each topic.
            start: Where to begin in a queue for which *group* has no offset: ``earliest``
                (default), ``latest``, a time, or ``committed``, which raises an error instead. In a
                queue that is added later, ``latest`` means the time at which the consumer started.
                If the group already has an offset, the consumer uses that and logs a warning.
            on_offset_out_of_range: Reaction to an offset that retention has deleted or that is past
                the queue's end: continue at the ``earliest``, ``latest`` or ``nearest`` message, or
                raise an ``error``, because continuing would skip or repeat messages unnoticed.
            commit_seconds: Interval of the automatic commits during polling; None: only ``commit``
                commits. Without a group nothing is committed.
            prefetch_count_max: Maximum number of messages prefetched per queue.
            prefetch_bytes_max: Maximum number of bytes prefetched in all queues together.
            wait_for_topics: Whether to wait for a missing topic instead of raising an error.
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
        if interceptors := overriding(self._interceptors, "receiving"):
            from eruca.aio.intercepting.pull_consumer import InterceptedPullConsumer

            return self._context.adopt(
                InterceptedPullConsumer(self._context, settings, interceptors)
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
            message_model: ``clustering``: one member of the group handles each message;
                ``broadcasting``: every member handles it, once, without retries.
            ordered: Whether the messages of each queue are handled one after another.
            start: Where the group begins in a topic, if this member creates the group. In
                broadcasting: where a client without offsets begins. Default: ``latest``.
            concurrency: Maximum number of handlers at a time.
            batch_count_max: Maximum number of messages in one call; if more than 1, handlers get
                lists.
            consume_timeout_seconds: Time limit of a handler. An async handler is cancelled then and
                counts as failed. A thread cannot be cancelled: its messages are sent back, or, if
                ordered, the queue waits for it. If an async handler blocks the event loop for
                longer than this, the consumer loses its queues.
            stop_timeout_seconds: Time limit for running handlers when the consumer stops.
            client_id: Its name in the group; default: a generated one. Broadcasting stores its
                offsets under this name, so the name must not change between runs.
            wait_for_topics: Whether to wait for a missing topic instead of raising an error.
            retries: What happens after a handler fails.
            limits: How much the consumer prefetches before it stops pulling.
            membership: How the consumer takes part in its group.
            offsets: How offsets are stored.
            listeners: Functions called when queues are assigned or revoked, and for damaged
                messages.
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
        return self._context.adopt(AsyncPushConsumer(self._context, settings, self._interceptors))

    def simple_consumer(
        self,
        group: str,
        topics: str | Iterable[str],
        *,
        filter: Filter | Mapping[str, Filter] = "*",
        start: Literal["earliest", "latest"] | datetime | None = None,
        invisible_seconds: float = INVISIBLE_SECONDS_DEFAULT,
    ) -> AsyncSimpleConsumer:
        """Return a new simple consumer: it leases messages and acknowledges each one by itself.

        Args:
            group: The consumer group.
            topics: What to receive: one topic or several.
            filter: Tags, ``"a || b"``, or a condition over properties, ``eruca.sql("price > 20")``;
                or one of these for each topic. A group has one filter per topic.
            start: Where the group begins in a topic, if this consumer creates the group; default:
                ``latest``.
            invisible_seconds: Lease of a received message: no other client receives it for so long.
        """
        # loaded late, as the push consumer
        from eruca.aio.simple_consumer import AsyncSimpleConsumer

        self._context.check_open()
        settings = SimpleSettings.resolve(
            group, topics=topics, filter=filter, start=start, invisible_seconds=invisible_seconds
        )
        if self._interceptors:
            from eruca.aio.intercepting.simple_consumer import InterceptedSimpleConsumer

            return self._context.adopt(
                InterceptedSimpleConsumer(self._context, settings, self._interceptors)
            )
        return self._context.adopt(AsyncSimpleConsumer(self._context, settings))

    def log_follower(
        self,
        broker_name: str,
        *,
        from_offset: int | Literal["earliest", "latest"] = "earliest",
        from_epoch: int | None = None,
        prefers_replica: bool = False,
    ) -> AsyncLogFollower:
        """Return a follower, which reads a broker's whole log record by record from an offset.

        Args:
            broker_name: The broker whose log is read.
            from_offset: A record's log offset, the log's end, ``earliest`` or ``latest``.
            from_epoch: The follower's ``epoch`` when the record before that offset was read; None:
                it is not known, and not verified.
            prefers_replica: Whether to read from a standby that is in sync, if there is one.
        """
        from eruca.aio.log_follower import AsyncLogFollower  # needs the models, as admin does

        self._context.check_open()
        return self._context.adopt(
            AsyncLogFollower(
                self._context,
                broker_name,
                from_offset=from_offset,
                from_epoch=from_epoch,
                prefers_replica=prefers_replica,
            )
        )

    async def close(self, *, drain: bool = True) -> None:
        """Close everything that was made from this client, then its connections.

        Producers send their buffered messages first, unless *drain* is false.
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
