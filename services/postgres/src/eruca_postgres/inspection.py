"""``--check`` of a service with a PostgreSQL: reach it, and say what a start would do there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, create_engine, exc, inspect, pool, text

from eruca_chassis.running.checking import Finding, directory_finding
from eruca_postgres.migrations import CONNECT_SECONDS, applied_to, fix_of, known_in
from eruca_postgres.settings import DatabaseSettings

_SUBJECT: Final = "database"
_STATEMENT_MS: Final = 5_000
_LOOK: Final = (
    "SELECT current_setting('server_version'), current_setting('transaction_read_only')::bool,"
    " has_database_privilege(current_database(), 'CREATE')"
)


def findings(settings: DatabaseSettings, schema: str, versions: Path) -> Iterator[Finding]:
    """Yield what a start would find in the database.

    Args:
        settings: The service's.
        schema: Its schema.
        versions: The folder of its migrations.
    """
    if settings.database_url is None:
        yield _embedded(settings)
        return
    arguments = {"connect_timeout": CONNECT_SECONDS}
    engine = create_engine(settings.database_url, poolclass=pool.NullPool, connect_args=arguments)
    try:
        with engine.connect() as connection:
            connection.execute(text(f"SET statement_timeout = {_STATEMENT_MS}"))
            yield _of_server(connection, schema, versions)
    except exc.DBAPIError as error:
        reason = (str(error.orig).strip().splitlines() or ["no reason given"])[0]
        yield Finding("fault", _SUBJECT, f"PostgreSQL does not answer: {reason}; {fix_of(reason)}")
    finally:
        engine.dispose()


def _of_server(connection: Connection, schema: str, versions: Path) -> Finding:
    server, is_read_only, may_create = connection.execute(text(_LOOK)).one()
    where = f"PostgreSQL {server.partition(' ')[0]}"
    if is_read_only:
        why = f"{where} is read-only: it is a standby, or configured so"
        return Finding("fault", _SUBJECT, f"{why}; set DATABASE_URL to a writable server")
    known = known_in(versions)
    if not inspect(connection).has_schema(schema):
        if not may_create:
            user = connection.engine.url.username or "USER"
            fix = f'let a privileged user run: CREATE SCHEMA {schema} AUTHORIZATION "{user}"'
            return Finding(
                "fault", _SUBJECT, f"{where} does not allow this user to create a schema; {fix}"
            )
        return Finding("ok", _SUBJECT, f"{where}; a start would create schema {schema}")
    applied = applied_to(connection, schema)
    if applied and not {*applied} <= {*known}:
        return Finding(
            "fault",
            _SUBJECT,
            f"{where}: schema {schema} was made by a newer version of this service, at "
            f"{', '.join(applied)}, and this one knows {known[-1]}: run the newer version, or give "
            "this one its own database",
        )
    if applied == [known[-1]]:
        return Finding("ok", _SUBJECT, f"{where}; schema {schema} is the newest, {known[-1]}")
    at = ", ".join(applied) or "its beginning"
    return Finding(
        "ok", _SUBJECT, f"{where}; a start would migrate schema {schema} from {at} to {known[-1]}"
    )


def _embedded(settings: DatabaseSettings) -> Finding:
    directory = settings.postgres_dir.absolute()
    name = settings.variables()["postgres_dir"]
    fix = f"set DATABASE_URL, or {name} to a directory that the service may read and write"
    if (directory / "PG_VERSION").exists():
        return Finding("ok", _SUBJECT, f"an embedded PostgreSQL with the data in {directory}")
    found = directory_finding(directory, _SUBJECT, fix=fix)
    if found is not None and found.kind == "fault":
        return found
    return Finding("ok", _SUBJECT, f"a start would make an embedded PostgreSQL in {directory}")
