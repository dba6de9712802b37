"""The client: one per application, from which everything else is made.

Making a client does nothing yet: connections are opened when they are needed, and what only some
programs use (httpx, the models of routes and of administration) is loaded when it is.

Concurrency rule: belongs to the event loop that first uses it, and to the process: after a fork
the child makes its own.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self

from eruca.aio.http1 import Http1Transport
from eruca.aio.name_servers import NameServers
from eruca.aio.producer import (
    BUFFER_SIZE_DEFAULT,
    COMPRESSION_THRESHOLD_DEFAULT,
    RETRIES_DEFAULT,
    SEND_TIMEOUT_DEFAULT,
    AsyncProducer,
)
from eruca.aio.pull_consumer import AsyncPullConsumer
from eruca.aio.transport import HttpTransport, HttpxTransport
from eruca.contract.errors import ClosedError
from eruca.core.batching import (
    BATCH_COUNT_DEFAULT,
    BATCH_SIZE_DEFAULT,
    IN_FLIGHT_DEFAULT,
    LINGER_MS_DEFAULT,
)
from eruca.core.client_settings import ClientSettings
from eruca.core.latency_fault import LatencyProfile
from eruca.core.message_queue import MessageQueue
from eruca.core.pull_positions import OutOfRangePolicy, StartPosition
from eruca.core.pull_settings import (
    COMMIT_SECONDS_DEFAULT,
    PREFETCH_COUNT_DEFAULT,
    PREFETCH_SIZE_DEFAULT,
    PullSettings,
)

if TYPE_CHECKING:
    from eruca.aio.admin import AsyncAdmin
    from eruca.aio.broker_api import BrokerApi
    from eruca.aio.log_follower import AsyncLogFollower
    from eruca.aio.routes import Routes


class _Child(Protocol):
    async def leave(self, *, drain: bool, failed: bool) -> None: ...


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
        self._settings = ClientSettings.resolve(
            os.environ, namesrv_urls=namesrv_urls, network=network, timeout=timeout
        )
        self._hot_transport = hot_transport or Http1Transport(ssl_context=ssl_context)
        self._transport = transport or HttpxTransport(ssl_context=ssl_context)
        self._name_servers = NameServers(self._settings.namesrv_urls, self._transport)
        self._routes: Routes | None = None
        self._admin: AsyncAdmin | None = None
        self._broker_api: BrokerApi | None = None
        self._children: dict[_Child, None] = {}  # in the order they were made
        self._is_closed = False

    @property
    def settings(self) -> ClientSettings:
        """What the client works with."""
        return self._settings

    @property
    def admin(self) -> AsyncAdmin:
        """Administration: topics, queues, groups, brokers, single messages."""
        from eruca.aio.admin import AsyncAdmin  # pydantic models: 0.2 s that senders need not spend

        if self._admin is None:
            self._admin = AsyncAdmin(self)
        return self._admin

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
        """
        self.check_open()
        producer = AsyncProducer(
            self,
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
        )
        self._children[producer] = None
        return producer

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
    ) -> AsyncPullConsumer:
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
        self.check_open()
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
        consumer = AsyncPullConsumer(self, settings)
        self._children[consumer] = None
        return consumer

    def log_follower(
        self, broker_name: str, *, from_offset: int | Literal["earliest", "latest"] = "earliest"
    ) -> AsyncLogFollower:
        """Return what reads a broker's whole log, record by record, from an offset on.

        Args:
            broker_name: Whose log.
            from_offset: A record's log offset, the log's end, ``earliest`` or ``latest``.
        """
        from eruca.aio.log_follower import AsyncLogFollower  # needs the models, as admin does

        self.check_open()
        follower = AsyncLogFollower(self, broker_name, from_offset=from_offset)
        self._children[follower] = None
        return follower

    async def close(self, *, drain: bool = True) -> None:
        """Close what was made from this client, then the connections.

        Producers send what they still have first, unless *drain* is false.
        """
        await self._close(drain=drain, failed=False)

    async def _close(self, *, drain: bool, failed: bool) -> None:
        if self._is_closed:
            return
        for child in tuple(self._children):
            await child.leave(drain=drain, failed=failed)
        self._is_closed = True
        if self._routes is not None:
            await self._routes.close()
        await asyncio.gather(self._hot_transport.close(), self._transport.close())

    async def __aenter__(self) -> Self:
        self.check_open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close(drain=True, failed=error is not None)

    # What its children use.

    @property
    def name_servers(self) -> NameServers:
        """The name servers."""
        return self._name_servers

    @property
    def routes(self) -> Routes:
        """The routes."""
        if self._routes is None:
            from eruca.aio.routes import Routes  # pydantic models: 0.2 s, when first needed

            self.check_open()
            self._routes = Routes(
                self._name_servers,
                network=self._settings.network,
                timeout=self._settings.timeout_seconds,
            )
        return self._routes

    @property
    def broker_api(self) -> BrokerApi:
        """What is asked of brokers beside the hot routes."""
        if self._broker_api is None:
            from eruca.aio.broker_api import BrokerApi  # pydantic models: 0.2 s, when first needed

            self._broker_api = BrokerApi(self._transport, self._settings.timeout_seconds)
        return self._broker_api

    @property
    def hot_transport(self) -> HttpTransport:
        """What carries sends and pulls."""
        return self._hot_transport

    @property
    def transport(self) -> HttpTransport:
        """What carries the rest."""
        return self._transport

    def check_open(self) -> None:
        """Raise ClosedError if the client has been closed."""
        if self._is_closed:
            raise ClosedError("the client is closed")

    def forget(self, child: _Child) -> None:
        """Drop something that has been closed."""
        self._children.pop(child, None)
