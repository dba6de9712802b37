"""The address in a broker's records, which together with the log offset makes an offset id.

It is part of every record, and changes when the broker starts at another address. So rows omit it,
and a small table records the log offset from which each address is valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_query.core.block_columns import BlockColumns
from eruca_query.projection.builds import Build
from eruca_query.projection.tables import store_hosts


class StoreHost(NamedTuple):
    """An address and a port."""

    address: bytes
    port: int


async def note_store_hosts(
    connection: AsyncConnection,
    build: Build,
    columns: BlockColumns,
    known: StoreHost | None,
) -> StoreHost | None:
    """Record changes of the address in a block, and return the address at its end.

    Args:
        connection: Has the transaction that writes the block.
        build: The build to which the block is written.
        columns: The block.
        known: The address before the block; None: read it from the table.
    """
    if not len(columns):
        return known
    host = known or await _latest(connection, build)
    for log_offset, changed in _changes(columns, host):
        host = changed
        await connection.execute(
            insert(store_hosts).values(
                broker_no=build.broker_no,
                build=build.number,
                from_offset=log_offset,
                address=changed.address,
                port=changed.port,
            )
        )
    return host


async def _latest(connection: AsyncConnection, build: Build) -> StoreHost | None:
    found = await connection.execute(
        select(store_hosts.c.address, store_hosts.c.port)
        .where(
            store_hosts.c.broker_no == build.broker_no,
            store_hosts.c.build == build.number,
        )
        .order_by(store_hosts.c.from_offset.desc())
        .limit(1)
    )
    row = found.first()
    return None if row is None else StoreHost(row.address, row.port)


def _changes(columns: BlockColumns, before: StoreHost | None) -> Iterator[tuple[int, StoreHost]]:
    # A broker has one address while it runs. If the first and the last record have the previous
    # address, so have all between them.
    last = len(columns) - 1
    if StoreHost(*columns.store_host(0)) == StoreHost(*columns.store_host(last)) == before:
        return
    for row in range(len(columns)):
        host = StoreHost(*columns.store_host(row))
        if host != before:
            yield int(columns.columns.log_offsets[row]), host
            before = host
