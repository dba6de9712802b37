"""A broker in memory: the real one, and a real name server, in a thread of the test's process.

Nothing is imitated. Clients speak HTTP to them. Messages are stored in a log with its projections,
in a file system in memory if the machine has one. A test can only set the clock forward, and no
setting comes from the environment.

Parts that need a PostgreSQL are missing: there are no transaction checks and no query service. A
test that needs them uses a :class:`eruca_testing.RunningCluster`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import uvloop
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource
from starlette.types import ASGIApp

import eruca
from eruca.core.messages.record_batch import decode_messages
from eruca_broker.app import create_app
from eruca_broker.processors.groups.work import GroupWork
from eruca_broker.processors.status import Identity
from eruca_broker.processors.timers import Timers
from eruca_broker.settings import BrokerSettings
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.asgi import Receive, Scope, Send
from eruca_chassis.clock import SystemClock
from eruca_chassis.logging import logging_as_guest
from eruca_chassis.routes.parts import Parts
from eruca_chassis.running.serving import EmbeddedServer, embedded
from eruca_deploy.ports import free_ports
from eruca_namesrv.app import create_app as create_namesrv_app
from eruca_namesrv.name_server import NameServer
from eruca_namesrv.settings import NamesrvSettings
from eruca_testing.loop_thread import LoopThread

_HOST: Final = "127.0.0.1"
_POLL_SECONDS: Final = 0.002
_START_SECONDS: Final = 30.0
_IN_STEP_SECONDS: Final = 10.0  # after which a client gets the current answer
_MEMORY: Final = Path("/dev/shm")  # a file system in memory, on Linux
_READ_COUNT: Final = 1_024  # messages per read
_READ_SIZE: Final = 4 * 1024 * 1024  # bytes per read
_ROOM: Final = 512 * 1024 * 1024  # bytes for several brokers; containers may have less

SETTINGS: Final[Mapping[str, object]] = {
    "segment_bytes": 16 * 1024 * 1024,
    "queue_file_entries": 4_096,
    "index_slots": 1_024,
    "index_entries": 4_096,
    "scrub_hours": 0,
    "stop_seconds": 2,
    # A test writes a few megabytes: don't refuse them on a disk that others have filled.
    "disk_high_ratio": 1,
    "disk_forced_ratio": 1,
    "disk_refuse_ratio": 1,
}
"""Settings of a broker in memory that differ from the defaults, unless a test overrides them."""


class InMemoryBroker:
    """A broker and its name server, for a ``with`` block.

    Args:
        settings: Fields of :class:`eruca_broker.settings.BrokerSettings`, such as
            ``{"auto_create_topics": False}``; its address and store directory cannot be set.
    """

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        self._settings = {**SETTINGS, **(settings or {})}
        self._clock = _ForwardClock()
        self._thread = LoopThread("eruca broker", uvloop.new_event_loop)
        self._stack = ExitStack()
        self._running: _Running | None = None

    def __enter__(self) -> Self:
        """Start the broker; clients can use it on return."""
        with ExitStack() as stack:
            stack.enter_context(logging_as_guest())
            directory = stack.enter_context(_scratch_directory())
            stack.enter_context(self._thread)
            serving = _serving(directory, self._settings, self._clock)
            self._running = stack.enter_context(self._thread.within(serving))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the broker, and delete its data."""
        self._running = None
        self._stack.close()

    @property
    def namesrv_urls(self) -> list[str]:
        """Return the name server's URL in a list, as clients take it."""
        return [self._here.namesrv_url]

    @property
    def url(self) -> str:
        """Return the broker's own URL, for plain HTTP."""
        return _url(self._here.server)

    def messages(self, topic: str) -> list[eruca.ReceivedMessage]:
        """Return the messages of *topic* in the order of storing; none if it does not exist.

        Delayed messages, and those of undecided transactions, are not in their topic yet. Retries
        are in ``%RETRY%group``, dead letters in ``%DLQ%group``.
        """
        return self._thread.call(_messages(self._here.parts, topic))

    def advance(self, seconds: float) -> None:
        """Set the broker's clock forward, and wait until all delays within *seconds* have ended.

        Delayed messages and retries are delivered, and unacknowledged deliveries whose lease
        expired are redelivered. Members of groups keep their sessions: these use a monotonic clock,
        and so do requests that wait.
        """
        if seconds < 0:
            raise ValueError(f"expected seconds of at least 0, found {seconds}")
        self._thread.call(self._advance(seconds))

    def wait_delayed(self, count: int = 1, *, timeout: float = 30) -> None:
        """Wait until at least *count* messages are delayed.

        A handler's failure becomes a retry at the broker a moment later. Call this before setting
        the clock forward, to be sure that it has.

        Raises:
            TimeoutError: There were fewer within *timeout* seconds.
        """
        self._thread.call(_wait_delayed(self._here.parts[MessageStore], count, timeout))

    @contextmanager
    def away(self) -> Iterator[None]:
        """Make the broker unreachable for the block, as if the network to it had been cut.

        Its connections are closed, and it accepts no other; it keeps its messages. The name server
        still lists it.
        """
        server = self._here.server
        self._thread.call(server.go_away())
        try:
            yield
        finally:
            self._thread.call(server.come_back())

    @property
    def _here(self) -> _Running:
        assert self._running is not None, "the broker runs within its `with` block"
        return self._running

    async def _advance(self, seconds: float) -> None:
        parts = self._here.parts
        store, timers = parts[MessageStore], parts[Timers]
        self._clock.ahead_ms += round(seconds * 1_000)
        await asyncio.sleep(0)  # let a message being stored keep the time before the change
        pending = store.timers
        while await timers.fire() or pending.held_count:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)  # the broker's own loop is delivering some of them
        watchers = parts[GroupWork].watchers
        for group in store.state.groups:
            watchers.wake_group(group)  # held requests look for deliveries again


class _Running(NamedTuple):
    namesrv_url: str
    server: EmbeddedServer  # the broker's
    parts: Parts  # the broker's


class _ForwardClock(SystemClock):
    """The machine's clock, with a time of day that can be set forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class _AsGiven(BaseSettings):
    """Settings that come only from arguments, not from the environment."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *_others: PydanticBaseSettingsSource,
        **_named: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


class _NamesrvSettings(_AsGiven, NamesrvSettings):
    pass


class _BrokerSettings(_AsGiven, BrokerSettings):
    pass


class _InStep:
    """Delays the name server's answers until it knows all of the broker's topics.

    In a cluster it learns a new topic some milliseconds late, for instance one created by sending.
    A test that then consumes it would fail on a busy machine.
    """

    def __init__(self, app: ASGIApp, names: Parts, stores: Sequence[MessageStore]) -> None:
        self._app = app
        self._names = names  # the name server's parts
        self._stores = stores  # empty until the broker runs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":  # but not the broker's registration
            with suppress(TimeoutError):
                async with asyncio.timeout(_IN_STEP_SECONDS):
                    while self._is_behind():  # noqa: ASYNC110 - no event tells of it
                        await asyncio.sleep(_POLL_SECONDS)
        await self._app(scope, receive, send)

    def _is_behind(self) -> bool:
        table = self._names[NameServer].table
        known = {
            topic.name
            for store in self._stores
            for topic in store.state.topics.values()
            if not topic.is_system
        }
        return table.broker_count > 0 and known != set(table.topics())


@asynccontextmanager
async def _serving(
    directory: Path, settings: Mapping[str, Any], clock: _ForwardClock
) -> AsyncIterator[_Running]:
    # There is one broker and no service, so the name server is settled once it has registered.
    name = settings.get("name", BrokerSettings.model_fields["name"].default)
    namesrv_settings = _NamesrvSettings(
        port=0, expected_brokers=name, expected_services="", stop_seconds=1
    )
    namesrv_app = create_namesrv_app(namesrv_settings)
    stores: list[MessageStore] = []
    namesrv_app.add_middleware(_InStep, names=namesrv_app.parts, stores=stores)
    async with embedded(namesrv_app, namesrv_settings) as namesrv:
        # Not a port that the kernel may assign to a client's connection while the broker is away.
        [port] = free_ports(_HOST, 1)
        places = {"host": _HOST, "port": port, "store_dir": directory}
        broker_settings = _BrokerSettings(**{**settings, **places, "namesrv_urls": _url(namesrv)})
        broker_app = create_app(broker_settings, clock)
        async with embedded(broker_app, broker_settings) as server:
            await _registered(namesrv_app.parts[NameServer])
            stores.append(broker_app.parts[MessageStore])
            yield _Running(_url(namesrv), server, broker_app.parts)


async def _registered(name_server: NameServer) -> None:
    async with asyncio.timeout(_START_SECONDS):
        while not name_server.table.broker_count:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(_POLL_SECONDS)


def _url(server: EmbeddedServer) -> str:
    [(host, port)] = server.service.addresses
    return f"http://{host}:{port}"


async def _messages(parts: Parts, topic: str) -> list[eruca.ReceivedMessage]:
    store, name = parts[MessageStore], parts[Identity].broker_name
    known = store.state.topics.get(topic)
    if known is None:
        return []
    found: list[eruca.ReceivedMessage] = []
    for queue_id in range(max(known.read_queue_count, known.write_queue_count)):
        queue = eruca.MessageQueue(topic, name, queue_id)
        offset, end = store.queues.range(topic, queue_id)
        while offset < end:
            read = store.queues.read(
                topic, queue_id, offset, count_max=_READ_COUNT, bytes_max=_READ_SIZE
            )
            sizes = [size for (size,) in struct.iter_unpack(">I", read.sizes)]
            found += decode_messages(queue, b"".join(read.slices), sizes)
            offset = read.next_offset
    return sorted(found, key=lambda message: message.log_offset)


async def _wait_delayed(store: MessageStore, count: int, timeout: float) -> None:
    pending = store.timers
    try:
        async with asyncio.timeout(timeout):
            while len(pending) < count:  # noqa: ASYNC110 - no event tells of a timer
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise TimeoutError(
            f"expected {count} delayed messages, found {len(pending)} after {timeout:g} s"
        ) from None


@contextmanager
def _scratch_directory() -> Iterator[Path]:
    """Yield a new directory, in memory if there is room."""
    is_roomy = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM
    with tempfile.TemporaryDirectory(prefix="eruca-", dir=_MEMORY if is_roomy else None) as path:
        yield Path(path)
