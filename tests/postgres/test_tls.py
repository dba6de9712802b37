"""Services verify PostgreSQL's certificate and its name, where ``DATABASE_URL`` says so."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio.to_thread
import pytest
from sqlalchemy import text

from eruca.contract.errors import DatabaseUnavailableError
from eruca_postgres.database import Database
from eruca_postgres.migrations import UnreachableError, upgrade
from eruca_postgres.settings import sqlalchemy_url
from support.authority import Authority
from support.postgres import EXAMPLE, drop_schema
from support.postgres_tls import encrypted

pytestmark = pytest.mark.anyio
NAME = "localhost"
SCHEMA = "example_tls"


def url_of(host: str, port: int, ca: Path, mode: str = "verify-full") -> str:
    return f"postgresql://postgres@{host}:{port}/postgres?sslmode={mode}&sslrootcert={ca}"


def socket_of(postgres_url: str) -> Path:
    [directory] = parse_qs(urlsplit(postgres_url).query)["host"]
    return Path(directory) / ".s.PGSQL.5432"


async def asked(url: str) -> tuple[int, bool]:
    """Return what the server counts, and whether the connection to it is encrypted."""
    database = Database(sqlalchemy_url(url), SCHEMA, connections_max=2)
    try:
        async with database.transaction() as connection:
            counted = await connection.scalar(text("SELECT 40 + 2"))
            driver = (await connection.get_raw_connection()).driver_connection
            assert driver is not None
            assert counted is not None
            return counted, driver.pgconn.ssl_in_use
    finally:
        await database.close()


async def test_a_server_with_the_right_certificate_and_name_is_used(
    postgres_url: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    async with encrypted(socket_of(postgres_url), authority.pair(NAME)) as port:
        url = url_of(NAME, port, authority.ca_file)
        await anyio.to_thread.run_sync(upgrade, sqlalchemy_url(url), SCHEMA, EXAMPLE)
        assert await asked(url) == (42, True)
    drop_schema(postgres_url, SCHEMA)


async def test_a_migration_verifies_too(postgres_url: str, tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    async with encrypted(socket_of(postgres_url), foreign.pair(NAME)) as port:
        url = sqlalchemy_url(url_of(NAME, port, authority.ca_file))
        with pytest.raises(UnreachableError, match=r"certificate verify failed.*; set sslrootcert"):
            await anyio.to_thread.run_sync(upgrade, url, SCHEMA, EXAMPLE)


async def test_a_certificate_of_a_foreign_authority_is_refused(
    postgres_url: str, tmp_path: Path
) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    async with encrypted(socket_of(postgres_url), foreign.pair(NAME)) as port:
        with pytest.raises(DatabaseUnavailableError, match="certificate verify failed"):
            await asked(url_of(NAME, port, authority.ca_file))

        assert await asked(url_of(NAME, port, foreign.ca_file)) == (42, True)


async def test_a_certificate_for_another_name_is_refused(postgres_url: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with encrypted(socket_of(postgres_url), authority.pair("db.example")) as port:
        told = 'certificate for "db.example" does not match host name "localhost"'
        with pytest.raises(DatabaseUnavailableError, match=told):
            await asked(url_of(NAME, port, authority.ca_file))

        assert await asked(url_of(NAME, port, authority.ca_file, "verify-ca")) == (42, True)


async def test_a_missing_file_of_authorities_is_named(postgres_url: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with encrypted(socket_of(postgres_url), authority.pair(NAME)) as port:
        with pytest.raises(DatabaseUnavailableError, match=r"nowhere\.pem"):
            await asked(url_of(NAME, port, tmp_path / "nowhere.pem"))
