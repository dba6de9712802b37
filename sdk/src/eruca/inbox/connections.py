"""Recognise a connection by its type's name, without importing its driver.

A connection that commits each statement by itself is refused: the message would be done before the
work is, and lost if that fails.
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
    """Carry out the steps that are for *connection*'s database; return their result.

    Args:
        steps_for: Returns the steps in the words of a database.
        connection: A connection, or a session.
        to_change: Whether it must be within a transaction, or begin one by itself.

    Raises:
        ValidationError: It is of no known kind, or commits each statement by itself.
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
    """Return what database *connection* leads to, and what carries out a statement there."""
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
    """Return what database a driver's own *connection* leads to."""
    for kind in type(connection).__mro__:
        if dialect := _DRIVERS.get(kind.__module__.partition(".")[0]):
            return dialect
    raise ValidationError(
        f"connection: {type(connection).__module__}.{type(connection).__qualname__} is not known",
        fix="use one of psycopg, psycopg2, sqlite3 or SQLAlchemy",
    )


def in_driver_words(sql: str, dialect: Dialect) -> str:
    """Return *sql* with its parameters written as the dialect's drivers have them."""
    return sql if dialect == "sqlite" else _PARAMETER.sub(r"%(\1)s", sql)


def check_transactional(driver_connection: Any) -> None:  # noqa: ANN401
    """Refuse a driver's connection that commits each statement by itself.

    Raises:
        ValidationError: It does, and no transaction has been begun on it.
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
            "connection: it commits each statement by itself, so a message would be done before"
            " its work is",
            fix="begin a transaction, or open the connection without autocommit",
        )


def check_commits(connection: Any) -> None:  # noqa: ANN401
    """Refuse a connection or session of SQLAlchemy whose block will not commit at its end.

    Raises:
        ValidationError: No transaction has been begun on it.
    """
    begun = getattr(connection, "in_transaction", None)
    if callable(begun) and not begun():
        raise ValidationError(
            "connect: its block does not commit at its end",
            fix="use engine.begin or sessionmaker.begin",
        )


def _known(name: str) -> Dialect:
    if name == "postgresql":
        return "postgresql"
    if name == "sqlite":
        return "sqlite"
    raise ValidationError(f"connection: an inbox is not kept in {name}", fix="use PostgreSQL")


def _with_sqlalchemy(connection: Any) -> Execute:  # noqa: ANN401
    from sqlalchemy import text  # the program has it, as it has the connection

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
