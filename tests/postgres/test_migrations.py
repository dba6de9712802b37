"""A schema is migrated by the first service that starts, and by none that is too old."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from structlog.testing import capture_logs

from eruca_chassis.start import StartError
from eruca_postgres.migrations import _lock_key, upgrade
from eruca_postgres.tables import log_positions
from eruca_query.wiring import MIGRATIONS as QUERY_MIGRATIONS
from eruca_txn_checker.wiring import MIGRATIONS as CHECKER_MIGRATIONS
from support.postgres import EXAMPLE
from support.waiting import wait_until

SECOND = '''"""Another column."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("things", sa.Column("name", sa.Text))
'''


def columns(url: str, schema: str, table: str = "things") -> list[str]:
    engine = create_engine(url)
    with engine.connect() as connection:
        found = connection.execute(
            text(
                "SELECT column_name FROM information_schema.columns "
                "WHERE table_schema = :schema AND table_name = :table ORDER BY 1"
            ),
            {"schema": schema, "table": table},
        )
        names = [row.column_name for row in found]
    engine.dispose()
    return names


@pytest.fixture
def two_versions(tmp_path: Path) -> Path:
    (tmp_path / "0001_first.py").write_text((EXAMPLE / "0001_first.py").read_text())
    (tmp_path / "0002_second.py").write_text(SECOND)
    return tmp_path


def test_several_instances_that_start_at_once_make_one_schema(alchemy_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(upgrade, alchemy_url, "at_once", EXAMPLE) for _ in range(4)]:
            done.result()

    assert columns(alchemy_url, "at_once") == ["id"]


def test_an_instance_says_that_it_waits_for_another_one(alchemy_url: str) -> None:
    engine = create_engine(alchemy_url)
    key = {"key": _lock_key("waited_for")}
    with ThreadPoolExecutor(1) as pool, capture_logs() as logs, engine.connect() as first:
        first.execute(text("SELECT pg_advisory_lock(:key)"), key)
        second = pool.submit(upgrade, alchemy_url, "waited_for", EXAMPLE)
        try:
            wait_until(lambda: logs or second.done())
        finally:
            first.execute(text("SELECT pg_advisory_unlock(:key)"), key)
        second.result()
    engine.dispose()

    [told] = logs
    assert told["event"] == "waiting for another instance to migrate the schema"
    assert told["schema"] == "waited_for"


def test_a_newer_version_adds_what_is_missing(alchemy_url: str, two_versions: Path) -> None:
    upgrade(alchemy_url, "grown", EXAMPLE)
    upgrade(alchemy_url, "grown", two_versions)

    assert columns(alchemy_url, "grown") == ["id", "name"]


@pytest.mark.parametrize("migrations", [CHECKER_MIGRATIONS, QUERY_MIGRATIONS])
def test_positions_that_were_made_without_a_last_block_get_one(
    alchemy_url: str, tmp_path: Path, migrations: Path
) -> None:
    schema = f"older_{migrations.parents[1].name}"
    (tmp_path / "0001_first.py").write_text((migrations / "0001_first.py").read_text())
    upgrade(alchemy_url, schema, tmp_path)
    engine = create_engine(alchemy_url)
    with engine.begin() as connection:
        for column in ("block_offset", "block_size", "block_crc"):
            connection.execute(text(f"ALTER TABLE {schema}.log_positions DROP COLUMN {column}"))
    engine.dispose()

    upgrade(alchemy_url, schema, migrations)

    assert columns(alchemy_url, schema, "log_positions") == sorted(log_positions.c.keys())


def test_an_older_version_does_not_touch_a_newer_schema(
    alchemy_url: str, two_versions: Path
) -> None:
    upgrade(alchemy_url, "newer", two_versions)

    with pytest.raises(StartError, match="newer version"):
        upgrade(alchemy_url, "newer", EXAMPLE)
    assert columns(alchemy_url, "newer") == ["id", "name"]


def test_a_user_without_the_right_is_told_how_to_be_given_a_schema(alchemy_url: str) -> None:
    engine = create_engine(alchemy_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CREATE ROLE tenant LOGIN"))
        of_tenant = alchemy_url.replace("//postgres:", "//tenant:")

        with pytest.raises(StartError, match="CREATE SCHEMA given AUTHORIZATION") as refused:
            upgrade(of_tenant, "given", EXAMPLE)
        connection.execute(text(str(refused.value).partition("user run: ")[2]))
        upgrade(of_tenant, "given", EXAMPLE)
    engine.dispose()

    assert columns(alchemy_url, "given") == ["id"]


def test_a_server_that_is_not_there_is_named_with_what_to_do() -> None:
    with pytest.raises(StartError, match="DATABASE_URL"):
        upgrade("postgresql+psycopg://nobody@127.0.0.1:1/none", "nowhere", EXAMPLE)
