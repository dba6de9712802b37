"""Recognise a connection by its type's name, without importing its driver.

A connection that commits each statement itself is refused. Its message would be done before the
work is, and lost if the work failed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from eruca.contract.errors import ValidationError
from eruca.inbox.rules import Dialect, Steps, T

Execute = Callable[[str, Mapping[str, object]], int]

_PARAMETER: Final = re.compile(r":(\w+)")
_DRIVERS: Final[Mapping[str, Dialect]] = {
    "psycopg": "postgresql",
    "psycopg2": "postgresql",
    "sqlite3": "sqlite",
}
_IDLE: Final = 0  # libpq's PQTRANS_IDLE


def carry_out(
    steps_for: Callable[[Dialect], Steps[T]], connection: object, *, to_change: bool
) -> T:
    """Execute the steps for *connection*'s database; return their result.

    Args:
        steps_for: Returns the steps in a database's dialect.
        connection: A connection, or a session.
        to_change: Whether the connection must be in a transaction, or begin one itself.

    Raises:
        ValidationError: The connection's type is unknown, or it commits each statement itself.
    """
    dialect, execute = _opened(connection, to_change=to_change)
    steps = steps_for(dialect)
    try:
        statement = next(steps)
        while True:
            statement = steps.send(execute(*statement))
    except StopIteration as end:
        result: T = end.value
        return result


def _opened(connection: Any, *, to_change: bool) -> tuple[Dialect, Execute]:  # noqa: ANN401
    """Return the dialect of *connection*'s database, and a function that executes a statement."""
    if callable(getattr(connection, "get_bind", None)):
        connection = connection.connection()  # a session's
    if hasattr(connection, "exec_driver_sql"):
        if to_change:
            check_transactional(connection.connection.dbapi_connection)
        return _known(connection.dialect.name), _with_sqlalchemy(connection)
    dialect = dialect_of(connection)
    if to_change:
        check_transactional(connection)
    return dialect, lambda sql, values: _executed(connection, in_driver_words(sql, dialect), values)


def dialect_of(connection: object) -> Dialect:
    """Return the dialect of a driver's own *connection*."""
    for kind in type(connection).__mro__:
        if dialect := _DRIVERS.get(kind.__module__.partition(".")[0]):
            return dialect
    raise ValidationError(
        f"connection: unknown type {type(connection).__module__}.{type(connection).__qualname__}",
        fix="use a connection of psycopg, psycopg2, sqlite3 or SQLAlchemy",
    )


def in_driver_words(sql: str, dialect: Dialect) -> str:
    """Return *sql* with its parameters in the syntax of the dialect's drivers."""
    return sql if dialect == "sqlite" else _PARAMETER.sub(r"%(\1)s", sql)


def check_transactional(driver_connection: Any) -> None:  # noqa: ANN401
    """Refuse a driver's connection that commits each statement itself.

    Raises:
        ValidationError: It does, and no transaction has begun on it.
    """
    if hasattr(driver_connection, "in_transaction"):  # sqlite3's
        begins = driver_connection.isolation_level is not None
        commits = not driver_connection.in_transaction and (
            getattr(driver_connection, "autocommit", None) is True or not begins
        )
    else:
        status = getattr(getattr(driver_connection, "info", None), "transaction_status", _IDLE)
        commits = getattr(driver_connection, "autocommit", None) is True and status == _IDLE
    if commits:
        raise ValidationError(
            "connection: it commits each statement itself, so a message would be done before"
            " its work is",
            fix="begin a transaction, or open the connection without autocommit",
        )


def check_commits(connection: Any) -> None:  # noqa: ANN401
    """Refuse a connection or session of SQLAlchemy whose context manager does not commit.

    Raises:
        ValidationError: No transaction has begun on it.
    """
    begun = getattr(connection, "in_transaction", None)
    if callable(begun) and not begun():
        raise ValidationError(
            "connect: its context manager does not commit at its end",
            fix="use engine.begin or sessionmaker.begin",
        )


def _known(name: str) -> Dialect:
    if name == "postgresql":
        return "postgresql"
    if name == "sqlite":
        return "sqlite"
    raise ValidationError(
        f"connection: expected PostgreSQL or SQLite, found {name}", fix="use PostgreSQL"
    )


def _with_sqlalchemy(connection: Any) -> Execute:  # noqa: ANN401
    from sqlalchemy import text  # installed, because the program has the connection

    def execute(sql: str, values: Mapping[str, object]) -> int:
        touched: int = connection.execute(text(sql), dict(values)).rowcount
        return touched

    return execute


def _executed(connection: Any, sql: str, values: Mapping[str, object]) -> int:  # noqa: ANN401
    cursor = connection.cursor()
    try:
        cursor.execute(sql, dict(values))
        touched: int = cursor.rowcount
    finally:
        cursor.close()
    return touched
