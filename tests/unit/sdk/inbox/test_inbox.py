"""The inbox's rules, tried in SQLite; what two do at once is PostgreSQL's test."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.orm import Session, sessionmaker

import eruca
from eruca.core.consuming.handler_shape import handler_shape
from eruca.inbox import AsyncInbox, Inbox
from eruca.inbox.rules import FORGET_EVERY
from support.inboxes import received, retry_of


@pytest.fixture
def inbox() -> Inbox:
    return Inbox("billing")


@pytest.fixture
def database(tmp_path: Path, inbox: Inbox) -> Path:
    path = tmp_path / "inbox.db"
    with closing(sqlite3.connect(path)) as connection:
        inbox.create_table(connection)
        connection.execute("CREATE TABLE done (what text)")
    return path


@pytest.fixture
def connection(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database)) as connection:
        yield connection


@pytest.fixture
def engine(database: Path) -> Engine:
    return create_engine(f"sqlite:///{database}", poolclass=NullPool)


@contextmanager
def transaction(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database)) as connection, connection:
        yield connection


def rows(connection: sqlite3.Connection, table: str = "eruca_inbox") -> int:
    count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return count


def test_a_message_is_accepted_once(inbox: Inbox, connection: sqlite3.Connection) -> None:
    assert [inbox.accept(connection, received()) for _ in range(3)] == [True, False, False]


@pytest.mark.parametrize("message_id", ["ID", None], ids=["unique id", "offset id"])
def test_a_retry_is_the_message_it_is_a_copy_of(
    inbox: Inbox, connection: sqlite3.Connection, message_id: str | None
) -> None:
    message = received(message_id)
    retry = retry_of(message, "billing")

    assert retry.offset_message_id != message.offset_message_id
    assert inbox.accept(connection, message)
    assert not inbox.accept(connection, retry)


def test_a_dead_letter_is_the_message_it_is_a_copy_of(
    inbox: Inbox, connection: sqlite3.Connection
) -> None:
    letter = received(topic="%DLQ%billing", offset=9_000, DLQ_ORIGIN_TOPIC="orders")

    assert inbox.accept(connection, received())
    assert not inbox.accept(connection, letter)


def test_other_topics_groups_and_ids_are_other_messages(connection: sqlite3.Connection) -> None:
    billing, shipping = Inbox("billing"), Inbox("shipping")

    assert billing.accept(connection, received())
    assert billing.accept(connection, received(topic="parcels"))
    assert billing.accept(connection, received("another"))
    assert billing.accept(connection, received(None))
    assert billing.accept(connection, received(None, offset=2_000))
    assert shipping.accept(connection, received())


def test_what_is_rolled_back_was_not_done(inbox: Inbox, connection: sqlite3.Connection) -> None:
    assert inbox.accept(connection, received())
    connection.rollback()

    assert inbox.accept(connection, received())


def test_of_a_batch_come_those_that_are_new_in_their_order(
    inbox: Inbox, connection: sqlite3.Connection
) -> None:
    inbox.accept(connection, received("b"))
    batch = [received("d"), received("b"), received("a"), received("d", offset=8_000)]

    assert inbox.accept_all(connection, batch) == [batch[0], batch[2]]


def test_a_forgotten_message_is_accepted_again(
    inbox: Inbox, connection: sqlite3.Connection
) -> None:
    inbox.accept(connection, received())

    assert inbox.forget(connection, received())
    assert not inbox.forget(connection, received())
    assert inbox.accept(connection, received())


def test_old_rows_go_as_new_ones_come(connection: sqlite3.Connection) -> None:
    inbox, other = Inbox("billing", keep=timedelta(days=2)), Inbox("shipping")
    for number in range(FORGET_EVERY):
        inbox.accept(connection, received(f"old-{number}"))
    other.accept(connection, received("old-0"))
    connection.execute("UPDATE eruca_inbox SET done_at = datetime('now', '-3 days')")

    inbox.accept(connection, received("new"))

    assert rows(connection) == 2  # the new one, and the other group's
    assert not inbox.accept(connection, received("new"))


def test_a_new_process_begins_with_forgetting(connection: sqlite3.Connection) -> None:
    Inbox("billing").accept(connection, received("old"))
    connection.execute("UPDATE eruca_inbox SET done_at = datetime('now', '-8 days')")

    Inbox("billing").accept(connection, received("new"))

    assert rows(connection) == 1


@pytest.mark.parametrize("kind", ["engine", "session"])
def test_a_decorated_handler_runs_once_in_its_transaction(
    inbox: Inbox, engine: Engine, connection: sqlite3.Connection, kind: str
) -> None:
    opens: Any = engine.begin if kind == "engine" else sessionmaker(engine).begin

    @inbox.once(opens)
    def handle(message: eruca.ReceivedMessage, within: Connection | Session) -> None:
        within.execute(text("INSERT INTO done VALUES (:what)"), {"what": message.text()})

    assert [handle(received()) for _ in range(2)] == [eruca.ConsumeStatus.SUCCESS] * 2
    assert rows(connection, "done") == 1


def test_a_handler_that_fails_leaves_nothing_and_runs_again(
    inbox: Inbox, database: Path, connection: sqlite3.Connection
) -> None:
    failures: list[Any] = [ValueError("no"), eruca.ConsumeStatus.RECONSUME_LATER, None]

    @inbox.once(lambda: transaction(database))
    def handle(message: eruca.ReceivedMessage, within: sqlite3.Connection) -> object:
        within.execute("INSERT INTO done VALUES (?)", (message.text(),))
        outcome = failures.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    with pytest.raises(ValueError, match="no"):
        handle(received())
    assert handle(received()) is eruca.ConsumeStatus.RECONSUME_LATER
    assert (rows(connection), rows(connection, "done")) == (0, 0)
    assert handle(received()) is eruca.ConsumeStatus.SUCCESS
    assert (rows(connection), rows(connection, "done")) == (1, 1)


def test_a_decorated_handler_of_batches_gets_what_is_new(inbox: Inbox, engine: Engine) -> None:
    handled: list[list[str | None]] = []

    @inbox.once(engine.begin)
    def handle(messages: list[eruca.ReceivedMessage], within: Connection) -> None:
        handled.append([message.message_id for message in messages])

    for batch in ("ab", "abc", "cb"):
        handle([received(letter) for letter in batch])

    assert handled == [["a", "b"], ["c"]]


def test_a_decorated_handler_is_called_with_the_message_alone(inbox: Inbox) -> None:
    @inbox.once(lambda: transaction(Path("unused")))
    def handle(message: eruca.ReceivedMessage, connection: sqlite3.Connection) -> None: ...

    @AsyncInbox("billing").once(lambda: nullcontext())
    async def handle_async(message: eruca.ReceivedMessage, connection: object) -> None: ...

    assert handler_shape(handle) == (False, False)
    assert handler_shape(handle_async) == (True, False)


def test_a_connection_that_commits_by_itself_is_refused(
    inbox: Inbox, database: Path, engine: Engine
) -> None:
    with (
        closing(sqlite3.connect(database, isolation_level=None)) as connection,
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as of_engine,
    ):
        for each in (connection, of_engine):
            with pytest.raises(eruca.ValidationError, match="commits each statement itself"):
                inbox.accept(each, received())
        connection.execute("BEGIN")

        assert inbox.accept(connection, received())


def test_a_block_that_would_not_commit_is_refused(inbox: Inbox, engine: Engine) -> None:
    @inbox.once(engine.connect)
    def handle(message: eruca.ReceivedMessage, within: Connection) -> None: ...

    with pytest.raises(eruca.ValidationError, match="does not commit"):
        handle(received())


def test_what_is_no_connection_is_refused(inbox: Inbox) -> None:
    with pytest.raises(eruca.ValidationError, match=r"unknown type builtins\.dict"):
        inbox.accept({}, received())


@pytest.mark.parametrize("table", ["", "Inbox", "a b", "a.b.c", "x; DROP TABLE y", "a" * 52])
def test_a_table_name_that_would_need_quotes_is_refused(table: str) -> None:
    with pytest.raises(eruca.ValidationError, match="table"):
        Inbox("billing", table=table)


def test_a_message_is_known_for_some_time() -> None:
    with pytest.raises(eruca.ValidationError, match="keep"):
        Inbox("billing", keep=timedelta(0))


def test_the_table_is_told_for_migrations() -> None:
    sql = Inbox("billing", table="app.inbox").table_sql

    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(sql.replace("app.", ""))

        assert rows(connection, "inbox") == 0
    assert "CREATE TABLE IF NOT EXISTS app.inbox (" in sql
    assert "INDEX IF NOT EXISTS inbox_done_at ON app.inbox" in sql
