"""Forget a broker that was removed for good: an operator's decision, never made here.

A missing broker may return, so it is followed for ever, and all its rows are kept. Forgetting
deletes them. Meanwhile nobody may follow the log, or new rows would mix with those being deleted.
So the broker's claim is blocked, without expiry, until nothing is left::

                begin_forgetting                    end_forgetting
    followed ────────────────────► being forgotten ───────────────► never followed
                 position deleted      rows deleted

The beginning waits for a transaction that writes under the claim; no later one can commit. The
block is recorded in PostgreSQL like everything else, so if an instance is killed in between,
another one continues. If a broker returns under that name, it is followed from the beginning of its
log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement, Select, delete, literal_column, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.errors import (
    BrokerNotFoundError,
    ConflictError,
    ErucaError,
    UnavailableError,
)
from eruca.contract.routes import BrokerList
from eruca.services.cluster import parsed, send_model
from eruca_postgres.database import Database
from eruca_postgres.positions import delete_position, read_positions
from eruca_postgres.tables import claim_fences, claims

if TYPE_CHECKING:
    from eruca import AsyncClient

RETRY_AFTER_SECONDS: Final = 2.0
_HOLDER: Final = "(being forgotten)"  # cannot be an instance's name, which has no brackets
_WITHOUT_END: Final[ColumnElement[Any]] = literal_column("timestamptz 'infinity'")
_BROKERS: Final = "/v1/brokers"


async def begin_forgetting(connection: AsyncConnection, broker_name: str) -> None:
    """Block a broker's claim and delete its position, so that nobody follows its log."""
    values = {"holder": _HOLDER, "fence": claim_fences.next_value(), "expires_at": _WITHOUT_END}
    await connection.execute(
        insert(claims)
        .values(name=broker_name, **values)
        .on_conflict_do_update(index_elements=["name"], set_=values)
    )
    await delete_position(connection, broker_name)


async def end_forgetting(connection: AsyncConnection, broker_name: str) -> None:
    """Release a broker's blocked claim once nothing is left, so that the name can be used again."""
    await connection.execute(
        delete(claims).where(claims.c.name == broker_name, claims.c.holder == _HOLDER)
    )


def being_forgotten() -> Select[Any]:
    """Return a statement for the names of brokers that are being forgotten."""
    return select(claims.c.name).where(claims.c.holder == _HOLDER)


async def forget(
    database: Database,
    client: AsyncClient,
    broker_name: str,
    *,
    known: Callable[[AsyncConnection], Awaitable[Iterable[str]]] = read_positions,
    drop: Callable[[AsyncConnection, str], Awaitable[None]] = begin_forgetting,
) -> None:
    """Forget a broker: from now on nobody works on it, and no answer mentions it.

    Args:
        database: Holds its rows.
        client: A client of the cluster, used to ask its name servers.
        broker_name: The broker's name.
        known: Returns the names of all brokers known to the database.
        drop: Begins the forgetting in one transaction, and may delete rows in it.

    Raises:
        BrokerNotFoundError: It was never followed, or has been forgotten.
        ConflictError: A name server knows it.
        UnavailableError: No name server answers.
        DatabaseUnavailableError: PostgreSQL is unreachable.
    """
    async with database.transaction() as connection:
        if broker_name not in await known(connection):
            raise not_followed(broker_name)
    await _require_gone(client, broker_name)
    async with database.transaction() as connection:
        await drop(connection, broker_name)


def not_followed(broker_name: str) -> BrokerNotFoundError:
    """Return the error for a broker that is not known here."""
    return BrokerNotFoundError(
        f"broker {broker_name} was never followed, or has been forgotten",
        fix="see GET /v1/status for the brokers that are followed",
    )


async def _require_gone(client: AsyncClient, broker_name: str) -> None:
    """Raise unless a broker is certainly gone: otherwise it would be followed again at once.

    Every name server is asked, because a broker may be known to only one. A name server that has
    just started refuses to answer before every broker has had time to register.

    Raises:
        ConflictError: A name server knows it.
        UnavailableError: None answers, or those that do are still settling.
    """
    urls = client.context.name_servers.urls
    told = await asyncio.gather(*(_knows(client, url, broker_name) for url in urls))
    if knowing := [url for url, knows in zip(urls, told, strict=True) if knows is True]:
        raise ConflictError(
            f"broker {broker_name} is registered at {', '.join(knowing)}, so it runs or ran a "
            "moment ago",
            fix="stop it first; a killed one stays registered until its registration expires",
        )
    if False not in told:
        raise UnavailableError(
            f"no name server confirms that broker {broker_name} is gone: "
            f"{'; '.join(map(str, told))}",
            fix="retry once a name server has been running for a moment",
            retry_after_seconds=RETRY_AFTER_SECONDS,
        )


async def _knows(client: AsyncClient, url: str, broker_name: str) -> bool | ErucaError:
    """Return whether a name server knows a broker, or its error if it gives no answer."""
    try:
        answer = await send_model(
            client.context.transport,
            "GET",
            url,
            _BROKERS,
            timeout=client.settings.timeout_seconds,
        )
        known = parsed(BrokerList, answer, url + _BROKERS).brokers
    except ErucaError as error:
        return error
    return any(group.broker_name == broker_name for group in known)
