"""Dropping all there is of a broker that is forgotten (:mod:`eruca_postgres.forgetting`).

Its number goes with it: one that comes back under that name gets another, so that nothing of what
is left of the old one, chunks that upkeep has not dropped yet, can be taken for its own.
"""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_postgres.forgetting import begin_forgetting, end_forgetting, not_followed
from eruca_query.projection.generations import end_all
from eruca_query.projection.tables import brokers


async def known_brokers(connection: AsyncConnection) -> list[str]:
    """Return the names of the brokers whose logs were ever followed, and not forgotten."""
    return list(await connection.scalars(select(brokers.c.broker_name)))


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
