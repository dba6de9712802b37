"""COPY: the fastest way to write thousands of rows to PostgreSQL.

The copied rows belong to the connection's transaction, like those of any statement. Finished rows
are sent while the next ones are built.

Source: PostgreSQL 18, COPY; psycopg 3.3, ``AsyncQueuedLibpqWriter``.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Sequence
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.copy import AsyncCopy
from psycopg.copy import AsyncQueuedLibpqWriter as QueuedWriter
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_postgres.database import unavailable

COPY_HEAD: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
"""Header of binary rows: a signature, no flags, no extension."""

COPY_END: Final = b"\xff\xff"
"""Trailer of binary rows."""


async def copy_binary(
    connection: AsyncConnection, table: str, columns: Sequence[str], rows: AsyncIterable[bytes]
) -> None:
    """Copy rows in PostgreSQL's binary format; a piece of *rows* may hold any number of them.

    Raises:
        DatabaseUnavailableError: PostgreSQL is unreachable; the transaction is lost.
    """
    cursor = await _cursor(connection)
    try:
        async with cursor.copy(
            _statement(table, columns, binary=True), writer=QueuedWriter(cursor)
        ) as copy:
            await copy.write(COPY_HEAD)
            async for piece in rows:
                await copy.write(piece)
            await copy.write(COPY_END)
    except psycopg.OperationalError as error:
        raise unavailable(error) from error


async def copy_values(
    connection: AsyncConnection,
    table: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
) -> None:
    """Copy rows of Python values; meant for some hundreds of rows.

    Raises:
        DatabaseUnavailableError: PostgreSQL is unreachable; the transaction is lost.
    """
    cursor = await _cursor(connection)
    try:
        async with cursor.copy(_statement(table, columns, binary=False)) as copy:
            await _write_rows(copy, rows)
    except psycopg.OperationalError as error:
        raise unavailable(error) from error


async def _write_rows(copy: AsyncCopy, rows: Iterable[Sequence[object]]) -> None:
    for row in rows:
        await copy.write_row(row)


async def _cursor(connection: AsyncConnection) -> psycopg.AsyncCursor[Any]:
    raw = await connection.get_raw_connection()
    driver = raw.driver_connection
    assert isinstance(driver, psycopg.AsyncConnection)
    return driver.cursor()


def _statement(table: str, columns: Sequence[str], *, binary: bool) -> sql.Composed:
    return sql.SQL("COPY {} ({}) FROM STDIN {}").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL("(FORMAT binary)" if binary else ""),
    )
