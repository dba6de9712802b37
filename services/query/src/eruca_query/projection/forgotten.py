"""Drop all data of a forgotten broker (:mod:`eruca_postgres.forgetting`).

Its number is dropped, too. A broker that returns under that name gets another one, so that the old
broker's remaining chunks, which upkeep has not dropped yet, cannot be mistaken for its own.
"""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_postgres.forgetting import begin_forgetting, end_forgetting, not_followed
from eruca_query.projection.builds import end_all
from eruca_query.projection.tables import brokers


async def known_brokers(connection: AsyncConnection) -> list[str]:
    """Return the names of the brokers whose logs were ever followed, except forgotten ones."""
    return list(await connection.scalars(select(brokers.c.broker_name)))


async def drop_broker(connection: AsyncConnection, broker_name: str) -> None:
    """Forget a broker in *connection*'s transaction.

    Raises:
        BrokerNotFoundError: Another request has forgotten it already.
    """
    await begin_forgetting(connection, broker_name)
    number = await connection.scalar(
        delete(brokers).where(brokers.c.broker_name == broker_name).returning(brokers.c.broker_no)
    )
    if number is None:
        raise not_followed(broker_name)
    await end_all(connection, number)
    await end_forgetting(connection, broker_name)
