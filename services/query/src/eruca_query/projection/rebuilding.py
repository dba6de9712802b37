"""Asking for logs to be read anew, whoever follows them."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, select, update

from eruca.contract.errors import BrokerNotFoundError
from eruca_postgres.database import Database
from eruca_postgres.positions import delete_position
from eruca_query.projection.tables import brokers


async def request_rebuild(database: Database, names: Iterable[str] | None) -> list[str]:
    """Have the read model made anew of the logs of some brokers, or of all; return their names.

    The position is set back: whoever follows the log notices by the next stretch of it, and reads
    from the log's beginning. The rows that are there answer until the new ones have come as far.

    Raises:
        BrokerNotFoundError: One of the brokers has never been followed; nothing has changed.
    """
    async with database.transaction() as connection:
        known = set(await connection.scalars(select(brokers.c.broker_name)))
        wanted = sorted(known if names is None else set(names))
        if unknown := [name for name in wanted if name not in known]:
            raise BrokerNotFoundError(
                f"no log of {', '.join(unknown)} has been followed",
                fix="see GET /v1/status for those that are",
            )
        for name in wanted:
            await delete_position(connection, name)
        await connection.execute(
            update(brokers)
            .where(brokers.c.broker_name.in_(wanted))
            .values(rebuild_requested_at=func.now())
        )
    return wanted
