"""The query service as an application: its document, its routes, and its limits.

:mod:`.wiring` makes the parts that answer the requests.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from eruca import AsyncClient
from eruca_access.explaining import explaining_router
from eruca_access.settings import gate_of
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock, SystemClock
from eruca_chassis.explorer.routes import Explored, ExploredServices
from eruca_chassis.versions import version_of
from eruca_query.api import message_counts, messages, status
from eruca_query.explorer.listing import list_services
from eruca_query.exports import routes as exports
from eruca_query.settings import QuerySettings
from eruca_query.wiring import wired

_DESCRIPTION: Final = """
The query service copies every broker's log into PostgreSQL. It finds messages by id, key, tag and
time, and shows each message's timeline.

Its data is a projection, which lags a little behind the logs. Each answer gives the progress,
broker by broker, and names everything that may be missing, with the reason. If nothing may be
missing, an empty answer means that nothing matches. Every error is an `application/problem+json`
document whose `code` is stable.
"""
_TAGS: Final = (
    {"name": "messages", "description": "Find messages, and get their timelines"},
    exports.TAG,
    {"name": "status", "description": "The service's identity and progress"},
)
_TITLE: Final = "Eruca query service"
_CLOSED_NOTE: Final = "With rules, each service shows only itself: open /docs of the others."
_WITHOUT_DATABASE: Final = ("/v1/exports/",)  # asks only brokers, so it works without PostgreSQL


def create_app(settings: QuerySettings, clock: Clock | None = None) -> ServiceApp:
    """Return the query service's application; its lifespan opens the database."""
    gate = gate_of(settings, "query")

    async def explored() -> ExploredServices:
        if app.readiness.is_starting:
            raise app.readiness.error()
        if gate is not None:  # the page needs no credentials, and would name all brokers
            return ExploredServices([Explored(_TITLE, "")], note=_CLOSED_NOTE)
        return await list_services(app.parts[AsyncClient])

    app = ServiceApp(
        title=_TITLE,
        summary="Messages by id, key, tag and time, and their timelines",
        description=_DESCRIPTION,
        version=version_of("eruca-query"),
        tags=_TAGS,
        routers=[
            messages.router,
            message_counts.router,
            exports.router,
            status.router,
            explaining_router(gate),
        ],
        lifespan=partial(wired, settings=settings, clock=clock or SystemClock()),
        guard=settings.guard(),
        gate=gate,
        client_share=settings.client_share,
        explored=explored,
        ungated=_WITHOUT_DATABASE,
    )
    return app
