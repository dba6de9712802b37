"""The client: one per application; it makes producers, consumers and the admin API.

Generated from ``eruca.aio.client`` by ``sdk/tools/generate_sync.py``; change that one.
See :mod:`eruca.sync.portal` for its design and its rules for threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from eruca.aio.client import CHECK_CONCURRENCY_DEFAULT, DECISION_SECONDS_DEFAULT, AsyncClient
from eruca.contract.limits import INVISIBLE_SECONDS_DEFAULT
from eruca.core.consuming.pull_settings import (
    COMMIT_SECONDS_DEFAULT,
    PREFETCH_COUNT_DEFAULT,
    PREFETCH_SIZE_DEFAULT,
)
from eruca.core.consuming.push_options import (
    LIMITS_DEFAULT,
    LISTENERS_DEFAULT,
    MEMBERSHIP_DEFAULT,
    OFFSETS_DEFAULT,
    RETRIES_DEFAULT,
)
from eruca.core.consuming.push_settings import (
    CONCURRENCY_DEFAULT,
    CONSUME_SECONDS_DEFAULT,
    STOP_SECONDS_DEFAULT,
)
from eruca.core.producing.batching import BATCHING_DEFAULT
from eruca.core.producing.producer_settings import (
    BUFFER_BYTES_DEFAULT,
    COMPRESSION_BYTES_DEFAULT,
    RETRIES_MAX_DEFAULT,
    SEND_SECONDS_DEFAULT,
)
from eruca.sync.portal import Portal, read_here

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from types import TracebackType

    from eruca.aio.http.transport import HttpTransport
    from eruca.core.call_statistics import CallStatistics
    from eruca.core.client_settings import ClientSettings
    from eruca.core.consuming.pull_positions import OutOfRangePolicy, StartPosition
    from eruca.core.consuming.push_options import Limits, Listeners, Membership, Offsets, Retries
    from eruca.core.credentials import Credentials, TlsFiles
    from eruca.core.filters.subscription_filter import Filter
    from eruca.core.interceptors import Interceptor
    from eruca.core.messages.message_queue import MessageQueue
    from eruca.core.producing.batching import Batching
    from eruca.core.producing.transaction_settings import CheckFunction
    from eruca.core.routing.latency_fault import LatencyProfile
    from eruca.sync.admin import Admin
    from eruca.sync.log_follower import LogFollower
    from eruca.sync.producer import Producer
    from eruca.sync.pull_consumer import PullConsumer
    from eruca.sync.push_consumer import PushConsumer
    from eruca.sync.query import Query
    from eruca.sync.simple_consumer import SimpleConsumer
    from eruca.sync.transaction_producer import TransactionProducer


class Client:
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
        self._twin = AsyncClient(
            namesrv_urls,
            network=network,
            timeout_seconds=timeout_seconds,
            standby_from_bytes=standby_from_bytes,
            credentials=credentials,
            tls_files=tls_files,
            ssl_context=ssl_context,
            hot_transport=hot_transport,
            transport=transport,
            interceptors=interceptors,
        )
        self._portal = Portal()

    @property
    def settings(self) -> ClientSettings:
        """The client's settings."""
        return self._twin.settings

    @property
    def admin(self) -> Admin:
        """Administration: topics, queues, groups, brokers, single messages."""
        from eruca.sync.admin import Admin  # as the async one, late

        return Admin(self._portal, self._portal.run(lambda: self._twin.admin))

    @property
    def query(self) -> Query:
        """The query service: messages by id, key, tag and time, and their history."""
        from eruca.sync.query import Query  # as the async one, late

        return Query(self._portal, self._portal.run(lambda: self._twin.query))

    def add_interceptor(self, interceptor: Interceptor) -> None:
        """Surround the calls of everything that this client makes from now on.

        Args:
            interceptor: Becomes the innermost one.
        """
        self._twin.add_interceptor(interceptor)

    def stats(self) -> tuple[CallStatistics, ...]:
        """Return the rates, times and failures of this client's sends, pulls and handlers.

        There is one entry for each operation, topic and group: of the last minute, of the last hour
        and since the start. Above 1 000 of them, further topics are counted together.
        """
        return self._portal.run(self._twin.stats)

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
    ) -> Producer:
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
        from eruca.sync.producer import Producer  # as the async one, late

        return Producer(
            self._portal,
            self._portal.run(
                self._twin.producer,
                group,
                idempotent=idempotent,
                copies=copies,
                latency_fault=latency_fault,
                retries_max=retries_max,
                send_timeout_seconds=send_timeout_seconds,
                batching=batching,
                buffer_bytes_max=buffer_bytes_max,
                compression_threshold_bytes=compression_threshold_bytes,
            ),
        )

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
    ) -> TransactionProducer:
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
        from eruca.sync.transaction_producer import TransactionProducer  # as the async one, late

        return TransactionProducer(
            self._portal,
            self._portal.run(
                self._twin.transaction_producer,
                group,
                check=check,
                check_concurrency=check_concurrency,
                checker_urls=read_here(checker_urls),
                latency_fault=latency_fault,
                retries_max=retries_max,
                send_timeout_seconds=send_timeout_seconds,
                decision_timeout_seconds=decision_timeout_seconds,
                await_decisions=await_decisions,
            ),
        )

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
    ) -> PullConsumer:
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
        from eruca.sync.pull_consumer import PullConsumer  # as the async one, late

        return PullConsumer(
            self._portal,
            self._portal.run(
                self._twin.pull_consumer,
                group,
                topics=read_here(topics),
                queues=read_here(queues),
                filter=filter,
                start=start,
                on_offset_out_of_range=on_offset_out_of_range,
                commit_seconds=commit_seconds,
                prefetch_count_max=prefetch_count_max,
                prefetch_bytes_max=prefetch_bytes_max,
                wait_for_topics=wait_for_topics,
            ),
        )

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
    ) -> PushConsumer:
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
        from eruca.sync.push_consumer import PushConsumer  # as the async one, late

        return PushConsumer(
            self._portal,
            self._portal.run(
                self._twin.push_consumer,
                group,
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
            ),
        )

    def simple_consumer(
        self,
        group: str,
        topics: str | Iterable[str],
        *,
        filter: Filter | Mapping[str, Filter] = "*",
        start: Literal["earliest", "latest"] | datetime | None = None,
        invisible_seconds: float = INVISIBLE_SECONDS_DEFAULT,
    ) -> SimpleConsumer:
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
        from eruca.sync.simple_consumer import SimpleConsumer  # as the async one, late

        return SimpleConsumer(
            self._portal,
            self._portal.run(
                self._twin.simple_consumer,
                group,
                read_here(topics),
                filter=filter,
                start=start,
                invisible_seconds=invisible_seconds,
            ),
        )

    def log_follower(
        self,
        broker_name: str,
        *,
        from_offset: int | Literal["earliest", "latest"] = "earliest",
        from_epoch: int | None = None,
        prefers_replica: bool = False,
    ) -> LogFollower:
        """Return a follower, which reads a broker's whole log record by record from an offset.

        Args:
            broker_name: The broker whose log is read.
            from_offset: A record's log offset, the log's end, ``earliest`` or ``latest``.
            from_epoch: The follower's ``epoch`` when the record before that offset was read; None:
                it is not known, and not verified.
            prefers_replica: Whether to read from a standby that is in sync, if there is one.
        """
        from eruca.sync.log_follower import LogFollower  # as the async one, late

        return LogFollower(
            self._portal,
            self._portal.run(
                self._twin.log_follower,
                broker_name,
                from_offset=from_offset,
                from_epoch=from_epoch,
                prefers_replica=prefers_replica,
            ),
        )

    def close(self, *, drain: bool = True) -> None:
        """Close everything that was made from this client, then its connections.

        Producers send their buffered messages first, unless *drain* is false.
        """
        self._portal.finish(self._twin.close, drain=drain)

    def __enter__(self) -> Self:
        self._twin.context.check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.finish(self._twin.__aexit__, kind, error, traceback)
