"""Forgetting a broker that was taken away for good: an operator's decision, never one made here.

A broker that is away comes back, as far as anybody can tell: it is followed for ever, with all that
is known of it. Forgetting drops that. Meanwhile nobody may follow the log, or what is dropped would
mix with what is read; so the broker's lease is withheld, without end, until nothing is left::

                begin_forgetting                    end_forgetting
    followed ────────────────────► being forgotten ───────────────► never followed
                the position goes     its rows go

Beginning waits for whoever writes under the lease, who writes nothing after it. It is noted in
PostgreSQL like everything else: when an instance is killed in between, another one goes on. Who
comes back under that name is followed from the beginning of its log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement, Select, delete, func, literal_column, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.aio.cluster.requests import parsed, send_model
from eruca.contract.errors import (
    BrokerNotFoundError,
    ConflictError,
    ErucaError,
    UnavailableError,
)
from eruca.contract.models import BrokerList
from eruca_postgres.database import Database
from eruca_postgres.positions import delete_position, read_positions
from eruca_postgres.tables import leases

if TYPE_CHECKING:
    from eruca import AsyncClient

RETRY_AFTER_SECONDS: Final = 2.0
_HOLDER: Final = "(being forgotten)"  # no instance's name ends with a bracket
_WITHOUT_END: Final[ColumnElement[Any]] = literal_column("timestamptz 'infinity'")
_BROKERS: Final = "/v1/brokers"


async def begin_forgetting(connection: AsyncConnection, broker_name: str) -> None:
    """Let nobody follow a broker's log, from this transaction on."""
    values = {"holder": _HOLDER, "fence": func.nextval("lease_fences"), "expires_at": _WITHOUT_END}
    await connection.execute(
        insert(leases)
        .values(name=broker_name, **values)
        .on_conflict_do_update(index_elements=["name"], set_=values)
    )
    await delete_position(connection, broker_name)


async def end_forgetting(connection: AsyncConnection, broker_name: str) -> None:
    """Let a broker of that name be followed again, if there ever is one: nothing is left."""
    await connection.execute(
        delete(leases).where(leases.c.name == broker_name, leases.c.holder == _HOLDER)
    )


def being_forgotten() -> Select[Any]:
    """Return a statement for the names of those of which something may be left."""
    return select(leases.c.name).where(leases.c.holder == _HOLDER)


async def forget(
    database: Database,
    client: AsyncClient,
    broker_name: str,
    *,
    known: Callable[[AsyncConnection], Awaitable[Iterable[str]]] = read_positions,
    drop: Callable[[AsyncConnection, str], Awaitable[None]] = begin_forgetting,
) -> None:
    """Forget a broker: from this moment on nobody works on it, and no answer knows of it.

    Args:
        database: Where its rows are.
        client: Of the cluster, whose name servers are asked.
        broker_name: The broker's.
        known: Returns the names of the brokers of which the database knows something.
        drop: Begins forgetting in one transaction, and does as much more in it as can be done.

    Raises:
        BrokerNotFoundError: It has never been followed, or has been forgotten.
        ConflictError: A name server knows it.
        UnavailableError: No name server answers.
        DatabaseUnavailableError: PostgreSQL does not.
    """
    async with database.transaction() as connection:
        if broker_name not in await known(connection):
            raise not_followed(broker_name)
    await _require_gone(client, broker_name)
    async with database.transaction() as connection:
        await drop(connection, broker_name)


def not_followed(broker_name: str) -> BrokerNotFoundError:
    """Return the error where there is nothing to forget."""
    return BrokerNotFoundError(
        f"no log of {broker_name} has been followed, or it has been forgotten",
        fix="see GET /v1/status for those that are",
    )


async def _require_gone(client: AsyncClient, broker_name: str) -> None:
    """Make sure that a broker is not there: one that is would be followed again at once.

    Each name server is asked, for a broker may be known to one alone. One that has just started
    refuses to say before every broker has had the time to register.

    Raises:
        ConflictError: A name server knows it.
        UnavailableError: None answers, or those that do cannot say yet.
    """
    urls = client.context.name_servers.urls
    told = await asyncio.gather(*(_knows(client, url, broker_name) for url in urls))
    if knowing := [url for url, knows in zip(urls, told, strict=True) if knows is True]:
        raise ConflictError(
            f"broker {broker_name} is registered at {', '.join(knowing)}: it runs, or did a moment "
            "ago",
            fix="stop it first; one that was killed is registered until a name server notices",
        )
    if False not in told:
        raise UnavailableError(
            f"whether broker {broker_name} is gone cannot be told: no name server says so: "
            f"{'; '.join(map(str, told))}",
            fix="repeat it once one has been running for a moment",
            retry_after_seconds=RETRY_AFTER_SECONDS,
        )


async def _knows(client: AsyncClient, url: str, broker_name: str) -> bool | ErucaError:
    """Tell whether a name server knows a broker; the error where it does not answer."""
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
