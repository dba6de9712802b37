"""Forgetting all there is of a broker that was taken away for good.

Its number goes with it: one that comes back under that name gets another, so that nothing of what
is left of the old one, chunks that upkeep has not dropped yet, can be taken for its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_postgres.database import Database
from eruca_postgres.forgetting import (
    begin_forgetting,
    end_forgetting,
    not_followed,
    require_gone,
)
from eruca_query.projection.generations import end_all
from eruca_query.projection.tables import brokers

if TYPE_CHECKING:
    from eruca import AsyncClient


async def known_brokers(connection: AsyncConnection) -> list[str]:
    """Return the names of the brokers whose logs were ever followed, and not forgotten."""
    return list(await connection.scalars(select(brokers.c.broker_name)))


async def forget_broker(database: Database, client: AsyncClient, broker_name: str) -> None:
    """Forget a broker: from this moment on no answer knows of it.

    Raises:
        BrokerNotFoundError: It has never been followed, or has been forgotten.
        ConflictError: A name server knows it.
        UnavailableError: No name server answers.
        DatabaseUnavailableError: PostgreSQL does not.
    """
    async with database.transaction() as connection:
        if broker_name not in await known_brokers(connection):
            raise not_followed(broker_name)
    await require_gone(client, broker_name)
    async with database.transaction() as connection:
        await drop_broker(connection, broker_name)


async def drop_broker(connection: AsyncConnection, broker_name: str) -> None:
    """Forget a broker in *connection*'s transaction.

    Raises:
        BrokerNotFoundError: Somebody else was faster.
    """
    await begin_forgetting(connection, broker_name)
    number = await connection.scalar(
        delete(brokers).where(brokers.c.broker_name == broker_name).returning(brokers.c.broker_no)
    )
    if number is None:
        raise not_followed(broker_name)
    await end_all(connection, number)
    await end_forgetting(connection, broker_name)
