"""Run a service: one process, one event loop, one port, until a signal stops it.

It uses uvicorn with uvloop and httptools, without access log and without ``date`` and ``server``
headers. The port is bound first, so that a port in use is reported before any work is done.
Connections are accepted from then on: while the service's lifespan starts, health is served and
other requests are refused. If requests waited in the kernel instead, they would be executed long
after their senders had timed out and retried.

On SIGTERM or SIGINT the service says farewell, if it has to: it hands its work to another process.
Then it becomes not ready and releases its held requests. Requests in progress get ``stop_seconds``
to end, and the lifespan is closed; the exit code is 0. A second SIGINT does not wait for requests.

Signals, logging and memory belong to the process. :func:`run` sets them up in the service's own
process. :func:`embedded` leaves them alone, and serves inside a foreign process.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator
from types import FrameType
from typing import Final, NamedTuple, NoReturn

import structlog
import uvicorn
import uvloop
from prometheus_client import Gauge

from eruca_chassis.app import ServiceApp
from eruca_chassis.connections.connection_watch import ConnectionLimits, ConnectionWatch
from eruca_chassis.connections.connections import (
    SWEEP_SECONDS,
    ServiceProtocol,
    protocol_class,
)
from eruca_chassis.connections.entrance import Door
from eruca_chassis.connections.tls_door import TlsDoor
from eruca_chassis.connections.traced import TracedApp
from eruca_chassis.connections.unix_door import UnixDoor
from eruca_chassis.files.directories import keep_private
from eruca_chassis.logging import configure_logging
from eruca_chassis.loops import BackgroundLoop
from eruca_chassis.running.process import (
    file_limit,
    freeze_start_up_objects,
    keep_freed_memory,
    raise_file_limit,
)
from eruca_chassis.running.service_manager import notify_started, notify_stopping
from eruca_chassis.running.settings import ServiceSettings
from eruca_chassis.sockets.listening import addresses_of, listen, listen_again, shown_host, url_of
from eruca_chassis.sockets.tls import LOOK_SECONDS, ServerTls
from eruca_chassis.sockets.unix_sockets import listen_at
from eruca_chassis.spans.exporting_traces import tracing_of
from eruca_chassis.start import StartError

LISTEN_EXIT_CODE: Final = 3  # the port is in use, or the address is not this machine's
START_EXIT_CODE: Final = 4  # the service itself refused to start
RECHECK_SECONDS: Final = 0.5  # so that a revocation is effective within 2 s, with room to spare
INTERRUPTED_EXIT_CODE: Final = 130  # as in a shell; only before serving began

_log = structlog.get_logger()


class Server(uvicorn.Server):
    """uvicorn's server; it notifies the service before it shuts down.

    It waits for an event to stop, while uvicorn would poll ten times a second. So an idle service
    sleeps.
    """

    def __init__(self, app: ServiceApp, settings: ServiceSettings) -> None:
        self.service = app
        self.tracing = tracing_of(settings.traces, settings.distribution())
        app.tracing = self.tracing
        self._is_told = asyncio.Event()  # to stop
        files = settings.tls_files()
        self.tls = None if files is None else ServerTls(files, app.registry)
        self._handshake_seconds = settings.tls_handshake_seconds
        self._head_seconds = settings.head_seconds
        self._listen = settings.listen  # unix:/PATH, or None
        self._reads_proxy_head = settings.listen_peer == "proxy_protocol"
        self.watch = ConnectionWatch(
            ConnectionLimits(
                connections_max=settings.connections_max,
                head_seconds=settings.head_seconds,
                request_seconds=settings.request_seconds,
                bytes_per_second_min=settings.bytes_per_second_min,
                unread_seconds=settings.unread_seconds,
                unread_bytes_max=settings.unread_bytes_max,
                files_max=file_limit(),
            ),
            lambda: app.files_needed(),
        )
        protocol = protocol_class(
            self.watch,
            app.hot,
            app.readiness,
            app.guard,
            app.gate,
            is_forwarded=settings.socket_path is not None and settings.listen_peer == "forwarded",
            is_certified=settings.socket_path is not None and settings.listen_client_cert,
            tracing=self.tracing,
        )
        self._heads = protocol.heads
        super().__init__(
            uvicorn.Config(
                app if self.tracing is None else TracedApp(app, app.template_of, self.tracing),
                http=protocol,
                ws="none",
                lifespan="off",  # serve() runs it, so that its errors are raised unchanged
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                backlog=settings.backlog,
                timeout_keep_alive=settings.keep_alive_seconds,
                timeout_graceful_shutdown=settings.stop_seconds,
            )
        )

        for metric, meaning, read in (
            ("eruca_http_connections", "Open connections", lambda: len(self.watch.connections)),
            (
                "eruca_http_unread_bytes",
                "Bytes of answers that clients are slow to read",
                lambda: self.watch.unread_size,
            ),
        ):
            Gauge(metric, meaning, registry=app.registry).set_function(read)

    async def accept(self, listeners: list[socket.socket]) -> None:
        """Start accepting connections."""
        if not self.config.loaded:
            self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        if self.tls is None and self._listen is None:
            await super().startup(listeners)
            return
        door: Door
        if self.tls is not None:
            door = TlsDoor(
                listeners, self.tls, self._new_protocol, handshake_seconds=self._handshake_seconds
            )
        else:
            door = UnixDoor(
                listeners,
                self._new_protocol,
                reads_proxy_head=self._reads_proxy_head,
                entering_seconds=self._head_seconds,
            )
        self.servers = [door]  # type: ignore[list-item] # it has what uvicorn uses of a server
        self.started = True

    def _new_protocol(self) -> ServiceProtocol:
        """Return the protocol of a new connection, as uvicorn's own start-up makes it."""
        made = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        assert isinstance(made, ServiceProtocol)
        return made

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Announce that the service listens: connections and signals are already handled."""
        freeze_start_up_objects()
        notify_started(f"listening on {self._say_listening()}")

    async def recheck(self) -> None:
        """Read changed rules; then end requests that wait and are no longer allowed."""
        gate = self.service.gate
        assert gate is not None
        if await gate.refresh():
            self._heads.forget()
        now = time.monotonic()
        for connection in tuple(self.watch.connections):
            connection.recheck(now)
        self.service.recheck(now)

    def stop(self) -> None:
        """Begin to stop."""
        self._is_told.set()

    async def main_loop(self) -> None:
        """Serve until the shutdown is requested."""
        # Once is enough: of the work of uvicorn's ticks, only the default headers are used here.
        await self.on_tick(0)
        await self._is_told.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop after a signal."""
        super().handle_exit(sig, frame)
        asyncio.get_running_loop().call_soon_threadsafe(self.stop)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say farewell, release held requests, then let requests end."""
        notify_stopping()
        await self._begin_stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Stop on a signal without raising it again: a requested stop is not a failure."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    def _say_listening(self) -> str:
        """Log where the service listens; return its first URL."""
        scheme = "http" if self.tls is None else "https"
        urls = [url_of(address, scheme) for address in self.service.addresses]
        urls = urls or [self._listen or ""]
        also = {"also": urls[1:]} if urls[1:] else {}
        access = "anybody" if self.service.gate is None else "by rules"
        _log.info("listening", url=urls[0], **also, access=access, pid=os.getpid())
        return urls[0]

    async def _begin_stop(self) -> None:
        _log.info("stopping")
        for farewell in self.service.farewells:
            try:
                async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                    await farewell()
            except Exception:  # the outermost frame of a farewell; the stop goes on
                _log.exception("farewell failed")
        self.watch.is_stopping = True  # before held requests are released and answered
        self.service.begin_stop()


class EmbeddedServer(Server):
    """A server inside a foreign process; created by :func:`embedded`.

    It stops as soon as requests have ended; uvicorn would poll for that ten times a second.
    """

    def __init__(self, app: ServiceApp, settings: ServiceSettings) -> None:
        super().__init__(app, settings)
        self.has_begun = asyncio.Event()  # the service has started

    async def go_away(self) -> None:
        """Close every connection and accept no other, as if the network were down."""
        self.close("the server goes away")
        await self.watch.all_lost()

    async def come_back(self) -> None:
        """Accept connections again, at the same addresses.

        Raises:
            OSError: Another process has taken the port meanwhile.
        """
        self.watch.is_away = False
        await self.accept(listen_again(self.service.addresses, self.config.backlog))

    def close(self, why: str) -> None:
        """Close the port and every connection at once."""
        self.watch.is_away = True
        for server in self.servers:
            server.close()
        for connection in list(self.watch.connections):
            connection.cut(why)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Announce that the service listens."""
        self._say_listening()
        self.has_begun.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say farewell, release held requests, let requests end; cut those that take too long."""
        await self._begin_stop()
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await self._all_ended()
        except TimeoutError:
            self.close("it has not ended within stop_seconds")
            for task in self.server_state.tasks:
                task.cancel()
            await self._all_ended()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the process's owner."""
        yield

    async def _all_ended(self) -> None:
        await self.watch.all_lost()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks)


async def serve(server: Server, listeners: list[socket.socket]) -> None:
    """Start the service on listening sockets, serve until a stop is requested, shut it down."""

    async def sweep_connections() -> None:
        server.watch.sweep(time.monotonic())

    sweep = BackgroundLoop("connections", sweep_connections, period_seconds=SWEEP_SECONDS)
    server.service.addresses = addresses_of(listeners)
    server.service.is_listening = True
    await server.accept(listeners)
    recheck = BackgroundLoop("access", server.recheck, period_seconds=RECHECK_SECONDS)
    sweep.start()
    issuers = None
    gate = server.service.gate
    if gate is not None:
        await gate.start()
        recheck.start()
        issuers = BackgroundLoop("token issuers", gate.fetch_keys, period_seconds=RECHECK_SECONDS)
        issuers.start()
    certificates = None
    if server.tls is not None:
        certificates = BackgroundLoop(
            "certificates", server.tls.refresh, period_seconds=LOOK_SECONDS
        )
        certificates.start()
    try:
        async with server.service.router.lifespan_context(server.service):
            await server.serve(sockets=listeners)
    finally:
        await recheck.stop()
        if issuers is not None:
            await issuers.stop()
        if gate is not None:
            await gate.stop()
        await sweep.stop()
        if certificates is not None:
            await certificates.stop()
        if server.tracing is not None:
            await server.tracing.close()
    _log.info("stopped")


@contextlib.asynccontextmanager
async def embedded(app: ServiceApp, settings: ServiceSettings) -> AsyncIterator[EmbeddedServer]:
    """Serve *app* on the running event loop for the block; yield its server once it has started.

    Raises:
        OSError: As :func:`listen`.
        StartError: The service refuses to start.
    """
    listeners = listeners_of(settings)
    try:
        server = EmbeddedServer(app, settings)
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    serving = asyncio.create_task(serve(server, listeners))
    has_begun = asyncio.create_task(server.has_begun.wait())
    try:
        await asyncio.wait((serving, has_begun), return_when=asyncio.FIRST_COMPLETED)
        if server.has_begun.is_set():
            yield server  # otherwise its failure is raised below
    finally:
        has_begun.cancel()
        server.stop()
        try:
            await serving
        except BaseException:
            server.close("the service has failed")  # the process lives on and would keep the port
            raise


def listeners_of(settings: ServiceSettings) -> list[socket.socket]:
    """Return the sockets on which a service with *settings* listens.

    Raises:
        OSError: As :func:`listen`, or :func:`listen_at` for a Unix socket.
        UnicodeError: As :func:`listen`.
    """
    path = settings.socket_path
    if path is None:
        return listen(settings.host, settings.port, settings.backlog)
    return [listen_at(path, settings.socket_mode, settings.backlog)]


def run(create_app: Callable[[], ServiceApp], settings: ServiceSettings, *, name: str) -> NoReturn:
    """Run the service called *name* until a signal; then end the process.

    The application is created once the port is bound. A ``StartError`` from *create_app* or from
    the application's lifespan ends the process with its text on stderr. Ctrl-C before the service
    serves is a KeyboardInterrupt.
    """
    configure_logging(name, level=settings.log_level, style=settings.log_style)
    keep_private(group_access=settings.group_access)
    raise_file_limit()
    keep_freed_memory()
    try:
        listeners = listeners_of(settings)
    except (OSError, UnicodeError) as error:
        if settings.listen is not None:
            why = error.strerror if isinstance(error, OSError) else str(error)
            _fail(f"{name}: cannot listen on {settings.listen}: {why}", LISTEN_EXIT_CODE)
        _fail(
            f"{name}: cannot listen on {shown_host(settings.host)}:{settings.port}: "
            f"{why_not_listening(error, settings.prefix()).text}",
            LISTEN_EXIT_CODE,
        )
    try:
        uvloop.run(serve(Server(create_app(), settings), listeners))
    except StartError as error:
        _fail(f"{name}: {error}", START_EXIT_CODE)
    raise SystemExit(0)


class WhyNotListening(NamedTuple):
    """The reason why a service cannot listen, and which setting to change."""

    text: str
    is_in_use: bool  # by another process


def why_not_listening(error: OSError | UnicodeError, prefix: str) -> WhyNotListening:
    """Return why listening failed, for settings with *prefix*."""
    if isinstance(error, UnicodeError):
        number, reason = None, "invalid host name"
    elif isinstance(error, socket.gaierror):
        number, reason = None, str(error.strerror)  # resolver errors have other numbers
    else:
        number, reason = error.errno, os.strerror(error.errno) if error.errno else str(error)
    fix = f"set {prefix}HOST to an address of this machine"
    if number == errno.EADDRINUSE:
        fix = f"stop the process that listens there or set {prefix}PORT"
    elif number == errno.EACCES:
        fix = f"set {prefix}PORT to one that needs no privilege, above 1023"
    return WhyNotListening(f"{reason}; {fix}", number == errno.EADDRINUSE)


def _fail(message: str, code: int) -> NoReturn:
    sys.stderr.write(message + "\n")
    raise SystemExit(code)
