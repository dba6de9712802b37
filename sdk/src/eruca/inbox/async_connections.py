"""Open and use an async connection of psycopg or SQLAlchemy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from eruca.inbox.connections import carry_out, check_transactional, dialect_of, in_driver_words
from eruca.inbox.rules import Dialect, Steps, T

C = TypeVar("C")


async def block_of(
    connect: Callable[
        [], AbstractAsyncContextManager[C] | Awaitable[AbstractAsyncContextManager[C]]
    ],
) -> AbstractAsyncContextManager[C]:
    """Return the context manager that *connect* returns, at once or when awaited."""
    block = connect()
    # SQLAlchemy's context manager can be awaited, too, but the result is not a context manager.
    return block if isinstance(block, AbstractAsyncContextManager) else await block


async def carry_out_async(
    steps_for: Callable[[Dialect], Steps[T]],
    connection: Any,  # noqa: ANN401
    *,
    to_change: bool,
) -> T:
    """Execute the steps as :func:`eruca.inbox.connections.carry_out` does, without blocking."""
    if hasattr(connection, "run_sync"):  # SQLAlchemy's, which has its own way to await

        def in_sync(sync_connection: object) -> T:
            return carry_out(steps_for, sync_connection, to_change=to_change)

        carried_out: T = await connection.run_sync(in_sync)
        return carried_out
    dialect = dialect_of(connection)
    if to_change:
        check_transactional(connection)
    steps = steps_for(dialect)
    try:
        sql, values = next(steps)
        while True:
            async with connection.cursor() as cursor:
                await cursor.execute(in_driver_words(sql, dialect), dict(values))
                touched = cursor.rowcount
            sql, values = steps.send(touched)
    except StopIteration as end:
        result: T = end.value
        return result
