"""The client: one per application, from which everything else is made.

Generated from ``eruca.aio.client`` by ``sdk/tools/generate_sync.py``; change that one. How it
works and which threads may do what is said in :mod:`eruca.sync.portal`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from eruca.aio.client import AsyncClient
from eruca.aio.producer import (
    BUFFER_SIZE_DEFAULT,
    COMPRESSION_THRESHOLD_DEFAULT,
    RETRIES_DEFAULT,
    SEND_TIMEOUT_DEFAULT,
)
from eruca.core.batching import (
    BATCH_COUNT_DEFAULT,
    BATCH_SIZE_DEFAULT,
    IN_FLIGHT_DEFAULT,
    LINGER_MS_DEFAULT,
)
from eruca.core.pull_settings import (
    COMMIT_SECONDS_DEFAULT,
    PREFETCH_COUNT_DEFAULT,
    PREFETCH_SIZE_DEFAULT,
)
from eruca.sync.portal import Portal

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from types import TracebackType

    from eruca.aio.transport import HttpTransport
    from eruca.core.client_settings import ClientSettings
    from eruca.core.latency_fault import LatencyProfile
    from eruca.core.message_queue import MessageQueue
    from eruca.core.pull_positions import OutOfRangePolicy, StartPosition
    from eruca.sync.admin import Admin
    from eruca.sync.log_follower import LogFollower
    from eruca.sync.producer import Producer
    from eruca.sync.pull_consumer import PullConsumer


class Client:
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
        self._twin = AsyncClient(
            namesrv_urls,
            network=network,
            timeout=timeout,
            ssl_context=ssl_context,
            hot_transport=hot_transport,
            transport=transport,
        )
        self._portal = Portal()

    @property
    def settings(self) -> ClientSettings:
        """What the client works with."""
        return self._twin.settings

    @property
    def admin(self) -> Admin:
        """Administration: topics, queues, groups, brokers, single messages."""
        from eruca.sync.admin import Admin  # as the async one, late

        return Admin(self._portal, self._portal.run(lambda: self._twin.admin))

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
    ) -> Producer:
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
        """
        from eruca.sync.producer import Producer  # as the async one, late

        return Producer(
            self._portal,
            self._portal.run(
                self._twin.producer,
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
            ),
        )

    def pull_consumer(
        self,
        group: str | None = None,
        *,
        topics: str | Iterable[str] = (),
        queues: Iterable[MessageQueue] = (),
        filter: str | Mapping[str, str] = "*",
        start: StartPosition | datetime = "earliest",
        on_offset_out_of_range: OutOfRangePolicy = "error",
        auto_commit_seconds: float | None = COMMIT_SECONDS_DEFAULT,
        prefetch_count: int = PREFETCH_COUNT_DEFAULT,
        prefetch_bytes: int = PREFETCH_SIZE_DEFAULT,
        wait_for_topics: bool = False,
    ) -> PullConsumer:
        """Return a new pull consumer, which reads the queues it is told to, alone.

        Args:
            group: Whose offsets are read and committed; None keeps no offsets.
            topics: Read all queues of these, those that come later included.
            queues: Read these; instead of *topics*.
            filter: Tags to let through, ``"a || b"``; or such an expression for each topic.
            start: Where to begin in a queue for which *group* has no offset: ``earliest``,
                ``latest``, a time, or ``committed``, which refuses to begin anywhere else.
            on_offset_out_of_range: What to do where retention has deleted what comes next, or the
                queue ends before: go to the ``earliest`` or ``latest`` message, or raise an
                ``error``, because going on would skip or repeat messages unnoticed.
            auto_commit_seconds: How often offsets are committed while polling; None for only by
                ``commit``. Without a group nothing is committed.
            prefetch_count: Messages kept ready per queue.
            prefetch_bytes: Bytes kept ready in all.
            wait_for_topics: Whether a topic that does not exist is waited for, or is an error.
        """
        from eruca.sync.pull_consumer import PullConsumer  # as the async one, late

        return PullConsumer(
            self._portal,
            self._portal.run(
                self._twin.pull_consumer,
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
            ),
        )

    def log_follower(
        self, broker_name: str, *, from_offset: int | Literal["earliest", "latest"] = "earliest"
    ) -> LogFollower:
        """Return what reads a broker's whole log, record by record, from an offset on.

        Args:
            broker_name: Whose log.
            from_offset: A record's log offset, the log's end, ``earliest`` or ``latest``.
        """
        from eruca.sync.log_follower import LogFollower  # as the async one, late

        return LogFollower(
            self._portal,
            self._portal.run(self._twin.log_follower, broker_name, from_offset=from_offset),
        )

    def close(self, *, drain: bool = True) -> None:
        """Close what was made from this client, then the connections.

        Producers send what they still have first, unless *drain* is false.
        """
        self._portal.finish(self._twin.close, drain=drain)

    def __enter__(self) -> Self:
        self._twin.check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.finish(self._twin.__aexit__, kind, error, traceback)
