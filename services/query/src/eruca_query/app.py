"""The query service, put together: the only place that builds and wires."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Final

from fastapi import APIRouter

from eruca import AsyncClient
from eruca_chassis.app import ServiceApp
from eruca_chassis.explorer.routes import ExploredServices
from eruca_query.explorer.listing import list_services
from eruca_query.exports import routes as exports
from eruca_query.exports.service import exports_of
from eruca_query.settings import QuerySettings

_DESCRIPTION: Final = """
The query service follows every broker's log into PostgreSQL and finds messages in it: by id, by
key, by tag, by time; and it tells what befell each of them.

What it knows is a projection, which runs a little behind the logs. Each answer says how far it has
come, broker by broker, and whether anything is missing from it and why: an empty answer without
such a note means that there is nothing. Every refusal is an `application/problem+json` document
whose `code` is stable.
"""
_ROUTERS: Final[tuple[APIRouter, ...]] = (exports.router,)
_TAGS: Final = (exports.TAG,)


def create_app(settings: QuerySettings) -> ServiceApp:
    """Return the query service's application."""

    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        async with AsyncClient(settings.namesrv_urls, network=settings.network) as client:
            app.state.client = client
            with exports_of(app, client, settings) as app.state.exports:
                app.readiness.ready()
                yield

    async def explored() -> ExploredServices:
        return await list_services(app.state.client)

    app = ServiceApp(
        title="Eruca query service",
        summary="Messages by id, key, tag and time, and what befell them",
        description=_DESCRIPTION,
        version=version("eruca-query"),
        tags=_TAGS,
        routers=_ROUTERS,
        lifespan=lifespan,
        explorer_origins=settings.explorer_origins,
        explored=explored,
    )
    app.state.settings = settings
    return app
