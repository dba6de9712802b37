"""The PostgreSQL server of one service: the configured one, or an embedded one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from eruca_postgres.settings import DatabaseSettings, sqlalchemy_url

if TYPE_CHECKING:
    from eruca_postgres.embedded import EmbeddedServer

_log = structlog.get_logger()


@asynccontextmanager
async def server_of(
    settings: DatabaseSettings,
) -> AsyncIterator[tuple[str, EmbeddedServer | None]]:
    """Yield the database's URL, and the server if it is embedded; that one stops with us."""
    if settings.database_url is not None:
        yield settings.database_url, None
        return
    from eruca_postgres.embedded import EmbeddedServer  # here: only some services have one

    server = EmbeddedServer(settings.postgres_dir.absolute())
    await asyncio.to_thread(server.start)
    try:
        _log.info("embedded PostgreSQL started", directory=str(settings.postgres_dir))
        yield sqlalchemy_url(server.url), server
    finally:
        await asyncio.to_thread(server.stop)
