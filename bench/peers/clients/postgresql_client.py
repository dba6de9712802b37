"""A table of PostgreSQL as a queue, by psycopg: ``… .postgresql_client URL FSYNC``.

A consumer reads rows in the order of their number, and saves the number of its last one, which is
how a log is kept in a table. With fsync each commit waits for the disk (``synchronous_commit``).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from itertools import count

import psycopg
from psycopg import sql

from bench.peers.clients.workload import (
    BACKLOG,
    BATCH,
    BODY,
    HANDLED,
    IN_FLIGHT,
    POLLED,
    SENT,
    Client,
    Counter,
    repeated,
    serve,
)

_SAVE = (
    "INSERT INTO progress VALUES (%s, %s) ON CONFLICT (reader) DO UPDATE SET last = excluded.last"
)


class PostgresqlClient(Client):
    """A blocking connection, the fastest for one call at a time, and one for each of 64 tasks."""

    def __init__(self) -> None:
        self._keys = count()

    async def open(self, address: str) -> None:
        """Connect to the server at *address*, and create what the workloads use."""
        mode = "on" if sys.argv[2] == "fsync" else "off"
        options = f"-c synchronous_commit={mode}"
        self._connection = psycopg.connect(address, autocommit=True, options=options)
        for table in (SENT, BACKLOG):
            self._connection.execute(
                sql.SQL(
                    "CREATE TABLE {} (number bigserial PRIMARY KEY, key text, body bytea)"
                ).format(sql.Identifier(table))
            )
        self._connection.execute("CREATE TABLE progress (reader text PRIMARY KEY, last bigint)")
        self._pool = [
            await psycopg.AsyncConnection.connect(address, autocommit=True, options=options)
            for _ in range(IN_FLIGHT)
        ]

    async def send(self) -> None:
        """Send a message, and return when it is acknowledged."""
        self._connection.execute("INSERT INTO sends (key, body) VALUES (%s, %s)", self._row())

    async def send_batch(self, target: str = SENT) -> None:
        """Send ``BATCH`` messages at once to *target*, and return when all are acknowledged."""
        statement = sql.SQL("COPY {} (key, body) FROM STDIN (FORMAT BINARY)")
        with (
            self._connection.cursor() as cursor,
            cursor.copy(statement.format(sql.Identifier(target))) as copy,
        ):
            copy.set_types(["text", "bytea"])
            for _ in range(BATCH):
                copy.write_row(self._row())

    async def many(self, ends_at: float) -> int:
        """Send with 64 tasks until the time is up; return the number of messages."""

        def sender(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> Awaitable[int]:
            async def send() -> None:
                await connection.execute(
                    "INSERT INTO sends (key, body) VALUES (%s, %s)", self._row()
                )

            return repeated(send, 1, ends_at)

        return sum(await asyncio.gather(*map(sender, self._pool)))

    async def consume(self, row: str, group: str, counter: Counter) -> None:
        """Read the backlog as a new group from its beginning until the counter has ended."""
        last, count_max = 0, HANDLED if row == "handlers32" else POLLED
        while not counter.ended.is_set():
            rows = self._connection.execute(
                "SELECT number, body FROM backlog WHERE number > %s ORDER BY number LIMIT %s",
                (last, count_max),
                binary=True,
            ).fetchall()
            if row == "handler":
                for _, body in rows:
                    await counter.handle(body)
            else:
                await counter.handle_all([body for _, body in rows])
            last = rows[-1][0]
            self._connection.execute(_SAVE, (group, last))

    def _row(self) -> tuple[str, bytes]:
        return f"key-{next(self._keys)}", BODY


if __name__ == "__main__":
    serve(PostgresqlClient())
