"""The console, put together: the only place that says who is made of what.

Read it from the top, in the order of starting; it stops in the opposite order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from eruca_access.reporting import at_name_servers, reporting_audit
from eruca_chassis.app import ServiceApp
from eruca_chassis.running.settings import split_urls
from eruca_console.metrics import ConsoleMetrics
from eruca_console.sessions.callers import Callers
from eruca_console.sessions.cookies import SessionCookie
from eruca_console.settings import ConsoleSettings
from eruca_console.shell.desk import Desk
from eruca_console.shell.live import LiveStreams


@asynccontextmanager
async def wired(app: ServiceApp, *, settings: ConsoleSettings) -> AsyncIterator[None]:
    """Run the console for the block, and let *app* answer requests by its parts."""
    parts = app.parts
    async with AsyncExitStack() as stack:
        name_servers = split_urls(settings.namesrv_urls)
        await stack.enter_async_context(
            reporting_audit(
                app, lambda transport: at_name_servers(transport, name_servers, settings.network)
            )
        )
        callers = Callers(settings, name_servers, app.gate)
        stack.push_async_callback(callers.close)
        streams = LiveStreams(
            maximum=settings.streams_max,
            per_caller=settings.streams_per_caller_max,
            period_seconds=settings.live_seconds,
            asked_seconds=lambda: callers.busy.seconds,
        )
        app.stop_hooks.append(streams.stop)
        port = app.addresses[0][1] if app.addresses else settings.port
        cookie = SessionCookie(settings.is_secure, port)
        parts.add(Desk(callers, cookie, streams, ";".join(name_servers), settings.advertised_url))
        app.open_routes()
        stack.enter_context(app.telling(ConsoleMetrics(callers, streams)))
        app.readiness.ready()
        stack.callback(app.begin_stop)
        yield
