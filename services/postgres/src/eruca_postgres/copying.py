"""COPY: the fastest way into PostgreSQL, for rows by the thousand.

What is copied belongs to the transaction that the connection is in, like any statement. Rows that
are ready are sent while the next ones are made.

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
"""What binary rows begin with: a signature, no flags, no extension."""

COPY_END: Final = b"\xff\xff"
"""What they end with."""


async def copy_binary(
    connection: AsyncConnection, table: str, columns: Sequence[str], rows: AsyncIterable[bytes]
) -> None:
    """Copy rows in PostgreSQL's binary format, any number of them in each piece of *rows*.

    Raises:
        DatabaseUnavailableError: PostgreSQL is not there; the transaction is lost.
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
    """Copy rows of Python values; for some hundreds of them.

    Raises:
        DatabaseUnavailableError: PostgreSQL is not there; the transaction is lost.
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
