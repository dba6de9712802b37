"""Migrate a service's schema at start; the first of several instances does it.

Migrations are Alembic's: numbered files in the service's ``migrations`` folder, applied under an
advisory lock, each in a transaction, unless it asks for several. A schema of a newer version is
left untouched. Where there is nothing to do, Alembic is not even imported.

Source: Alembic 1.20; PostgreSQL 18, advisory locks.
"""

from __future__ import annotations

import logging
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
import structlog
from psycopg.errors import InsufficientPrivilege
from sqlalchemy import Connection, create_engine, exc, inspect, pool, text

from eruca_chassis.start import StartError
from eruca_postgres.database import FIX_SHORT, is_shortage

if TYPE_CHECKING:
    from alembic.config import Config

CONNECT_SECONDS: Final = 5
_ENVIRONMENT: Final = Path(__file__).parent / "alembic"

_log = structlog.get_logger()


class UnreachableError(StartError):
    """PostgreSQL is unreachable, or short of what a migration needs; retry later."""


def fix_of(reason: str) -> str:
    """Return what an operator can do about a connection that failed for *reason*, libpq's text."""
    if "certificate" in reason:  # libpq has no code for it
        return "set sslrootcert of DATABASE_URL, and its host, to those of the server's certificate"
    return "start it, or set DATABASE_URL to a running one"


def upgrade(url: str, schema: str, versions: Path) -> None:
    """Migrate *schema* to the newest file in *versions*. Blocks; waits for other instances.

    Raises:
        UnreachableError: PostgreSQL is unreachable, or short of memory, locks or disk space.
        StartError: The schema is of a newer version, or the user may not create it.
    """
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs what it might do
    engine = create_engine(
        url, poolclass=pool.NullPool, connect_args={"connect_timeout": CONNECT_SECONDS}
    )
    try:
        with engine.connect() as connection:
            _lock(connection, schema)
            if not inspect(connection).has_schema(schema):  # even IF NOT EXISTS needs the privilege
                connection.execute(text(f'CREATE SCHEMA "{schema}"'))
            connection.commit()
            connection.execute(text(f'SET search_path TO "{schema}"'))
            if not _is_newest(connection, schema, versions):
                connection.commit()  # in a transaction of ours, Alembic would begin none
                _upgrade(_config(schema, versions), connection, schema)
            connection.commit()
    except exc.OperationalError as error:
        raise _unreachable(error) from error
    except exc.ProgrammingError as error:
        if not isinstance(error.orig, InsufficientPrivilege):
            raise
        user = engine.url.username or "USER"
        raise StartError(
            f"PostgreSQL does not allow this user to create schema {schema}: {error.orig}; let a "
            f'privileged user run: CREATE SCHEMA {schema} AUTHORIZATION "{user}"'
        ) from error
    finally:
        engine.dispose()  # closing the connection releases the lock


def _unreachable(error: exc.OperationalError) -> UnreachableError:
    reason = str(error.orig).strip().splitlines()[0]
    if is_shortage(error):
        hint = error.orig.diag.message_hint if isinstance(error.orig, psycopg.Error) else None
        return UnreachableError(f"PostgreSQL cannot be used: {reason}; {hint or FIX_SHORT}")
    return UnreachableError(f"PostgreSQL does not answer: {reason}; {fix_of(reason)}")


def _lock(connection: Connection, schema: str) -> None:
    """Take the lock, or log that another instance has it and wait."""
    key = {"key": _lock_key(schema)}
    if connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), key):
        return
    _log.info("waiting for another instance to migrate the schema", schema=schema)
    connection.execute(text("SELECT pg_advisory_lock(:key)"), key)


def known_in(versions: Path) -> list[str]:
    """Return the numbers of the migrations in the folder *versions*, in order."""
    return sorted(file.stem.partition("_")[0] for file in versions.glob("*_*.py"))


def applied_to(connection: Connection, schema: str) -> list[str]:
    """Return the number of the last migration of *schema*, in a list; an empty one if none was."""
    if not inspect(connection).has_table("alembic_version", schema):
        return []
    found = connection.scalars(text(f'SELECT version_num FROM "{schema}".alembic_version'))
    return [*map(str, found)]


def _is_newest(connection: Connection, schema: str, versions: Path) -> bool:
    """Return whether the last of the numbered files has been applied."""
    return applied_to(connection, schema) == known_in(versions)[-1:]


def _upgrade(config: Config, connection: Connection, schema: str) -> None:
    from alembic import command
    from alembic.script import ScriptDirectory
    from alembic.script.revision import ResolutionError
    from alembic.util import CommandError

    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except (CommandError, ResolutionError) as error:
        heads = ", ".join(ScriptDirectory.from_config(config).get_heads())
        raise StartError(
            f"schema {schema} was made by a newer version of this service ({error}); this one "
            f"knows {heads}: run the newer version, or give this one its own database"
        ) from error


def _config(schema: str, versions: Path) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_ENVIRONMENT))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", str(versions))
    config.attributes["schema"] = schema
    return config


def _lock_key(schema: str) -> int:
    return zlib.crc32(f"eruca migrations {schema}".encode())
