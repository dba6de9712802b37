"""``--check`` of a service with a PostgreSQL: it reaches the database, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, text

from eruca_chassis.running.checking import Finding
from eruca_postgres.inspection import findings
from eruca_postgres.migrations import upgrade
from eruca_query.settings import QuerySettings
from support.postgres import EXAMPLE


def found(url: str | None, schema: str, versions: Path = EXAMPLE, **settings: object) -> Finding:
    made = QuerySettings().model_copy(update={"database_url": url, **settings})
    [finding] = findings(made, schema, versions)
    return finding


@pytest.fixture
def two_versions(tmp_path: Path) -> Path:
    for name in ("0001_first.py", "0002_second.py"):
        (tmp_path / name).write_text("")
    return tmp_path


def schemas(url: str) -> set[str]:
    engine = create_engine(url)
    with engine.connect() as connection:
        names = {*connection.scalars(text("SELECT nspname FROM pg_namespace"))}
    engine.dispose()
    return names


def test_a_missing_schema_would_be_made(alchemy_url: str) -> None:
    finding = found(alchemy_url, "never_made")

    assert finding.kind == "ok"
    assert finding.text.endswith("; a start would create schema never_made")
    assert "never_made" not in schemas(alchemy_url)


def test_a_schema_is_compared_with_the_migrations(alchemy_url: str, two_versions: Path) -> None:
    upgrade(alchemy_url, "compared", EXAMPLE)

    newest = found(alchemy_url, "compared")
    assert newest.kind == "ok"
    assert newest.text.endswith("; schema compared is the newest, 0001")
    older = found(alchemy_url, "compared", two_versions)
    assert older.kind == "ok"
    assert older.text.endswith("; a start would migrate schema compared from 0001 to 0002")


def test_a_schema_of_a_newer_version_is_a_fault(alchemy_url: str) -> None:
    upgrade(alchemy_url, "of_newer_version", EXAMPLE)

    def set_version(connection: Connection) -> None:
        connection.execute(text("UPDATE of_newer_version.alembic_version SET version_num = '0009'"))

    engine = create_engine(alchemy_url)
    with engine.begin() as connection:
        set_version(connection)
    engine.dispose()

    finding = found(alchemy_url, "of_newer_version")

    assert finding.kind == "fault"
    assert "was made by a newer version of this service, at 0009" in finding.text


def test_a_server_that_does_not_answer_is_a_fault() -> None:
    finding = found("postgresql+psycopg://somebody:secret@127.0.0.1:1/none", "any")

    assert finding.kind == "fault"
    assert finding.text.startswith("PostgreSQL does not answer: ")
    assert finding.text.endswith("; start it, or set DATABASE_URL to a running one")
    assert "secret" not in finding.text


def test_a_server_that_is_read_only_is_a_fault(alchemy_url: str) -> None:
    separator = "&" if "?" in alchemy_url else "?"
    option = f"{separator}options=-c%20default_transaction_read_only%3Don"

    finding = found(alchemy_url + option, "any")

    assert finding.kind == "fault"
    assert finding.text.endswith("set DATABASE_URL to a writable server")


def test_an_embedded_server_is_not_started(tmp_path: Path) -> None:
    data = tmp_path / "data"

    missing = found(None, "any", postgres_dir=data)
    assert missing == Finding(
        "ok", "database", f"a start would make an embedded PostgreSQL in {data}"
    )
    assert not data.exists()
    data.mkdir()
    (data / "PG_VERSION").write_text("18")
    assert found(None, "any", postgres_dir=data).text.endswith(f"with the data in {data}")
    nowhere = found(None, "any", postgres_dir=data / "PG_VERSION" / "inside")
    assert nowhere.kind == "fault"
    assert "set DATABASE_URL, or ERUCA_QUERY_POSTGRES_DIR to" in nowhere.text
