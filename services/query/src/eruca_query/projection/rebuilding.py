"""Request that logs are read again, on whichever instance follows them."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, select, update

from eruca.contract.errors import BrokerNotFoundError
from eruca_postgres.database import Database
from eruca_postgres.positions import delete_position
from eruca_query.projection.tables import brokers


async def request_rebuild(database: Database, names: Iterable[str] | None) -> list[str]:
    """Request a rebuild for some brokers, or for all; return their names.

    The position is reset. The instance that follows the log notices it at the next block, and reads
    from the log's beginning. The present rows answer until the new ones have caught up.

    Raises:
        BrokerNotFoundError: One of the brokers has never been followed; nothing has changed.
    """
    async with database.transaction() as connection:
        known = set(await connection.scalars(select(brokers.c.broker_name)))
        wanted = sorted(known if names is None else set(names))
        if unknown := [name for name in wanted if name not in known]:
            raise BrokerNotFoundError(
                f"no log of {', '.join(unknown)} has been followed",
                fix="see GET /v1/status for the brokers that are followed",
            )
        for name in wanted:
            await delete_position(connection, name)
        await connection.execute(
            update(brokers)
            .where(brokers.c.broker_name.in_(wanted))
            .values(rebuild_requested_at=func.now())
        )
    return wanted
