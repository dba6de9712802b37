"""An inbox's SQL statements, in order; both inboxes execute them.

The row is inserted first, and the insert decides. ``ON CONFLICT DO NOTHING`` waits for an open
transaction that has inserted the same row. The rows of a batch are always inserted in the same
order. Otherwise two members with the same messages could deadlock.

Every 100th call deletes old rows, the first call included. It deletes up to ten times as many as
may have been added since. It skips rows that other calls are deleting. So the table has the rows of
the last ``keep``, and few more.

An id that a database cannot store is replaced by its digest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import timedelta
from itertools import count
from typing import Any, Final, Literal, TypeVar

from eruca.contract.errors import ValidationError
from eruca.contract.limits import MESSAGE_ID_SIZE_MAX
from eruca.core.checked_arguments import check_argument
from eruca.core.checked_names import check_own_group
from eruca.core.consuming.consume_status import ConsumeStatus
from eruca.core.messages.received_message import ReceivedMessage

T = TypeVar("T")
Dialect = Literal["postgresql", "sqlite"]
Statement = tuple[str, Mapping[str, object]]  # parameters are written :name
Steps = Generator[Statement, int, T]  # receives the number of rows that each statement changed

TABLE_DEFAULT: Final = "eruca_inbox"
KEEP_DEFAULT: Final = timedelta(days=7)  # more than twice what brokers keep by default
KEEP_MAX: Final = timedelta(days=36_500)  # practically for ever, which databases cannot express
FORGET_EVERY: Final = 100  # calls
FORGET_PER_MESSAGE: Final = 10  # so that a neglected table becomes small again, too

_TABLE_NAME: Final = re.compile(r"(?:[a-z_][a-z0-9_]*\.)?[a-z_][a-z0-9_]{0,50}")
_TABLE: Final = """\
CREATE TABLE IF NOT EXISTS {table} (
    consumer_group text NOT NULL,
    topic text NOT NULL,
    message_id text NOT NULL,
    done_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (consumer_group, topic, message_id)
)"""
_INDEX: Final = "CREATE INDEX IF NOT EXISTS {index} ON {table} (consumer_group, done_at)"
# Two that find the table missing would both create it, and PostgreSQL refuses the second.
_ONE_AT_A_TIME: Final = "SELECT pg_advisory_xact_lock(hashtext('eruca inbox'))"
_INSERT: Final = (
    "INSERT INTO {table} (consumer_group, topic, message_id) VALUES (:group, :topic, :message_id)"
    " ON CONFLICT DO NOTHING"
)
_FORGET: Final = (
    "DELETE FROM {table}"
    " WHERE consumer_group = :group AND topic = :topic AND message_id = :message_id"
)
_FORGET_OLD: Final[Mapping[Dialect, str]] = {
    "postgresql": (
        "DELETE FROM {table} WHERE ctid = ANY (ARRAY (SELECT ctid FROM {table}"
        " WHERE consumer_group = :group AND"
        " done_at < CURRENT_TIMESTAMP - make_interval(secs => :seconds)"
        " ORDER BY done_at LIMIT :count FOR UPDATE SKIP LOCKED))"
    ),
    "sqlite": (
        "DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table}"
        " WHERE consumer_group = :group AND"
        " done_at < datetime('now', '-' || :seconds || ' seconds')"
        " ORDER BY done_at LIMIT :count)"
    ),
}


class UndoneError(Exception):
    """A handler returned a verdict other than success: its transaction must be rolled back."""

    def __init__(self, verdict: object) -> None:
        super().__init__(f"the handler returned {verdict}")
        self.verdict = verdict


class InboxRules:
    """The common part of both inboxes."""

    def __init__(
        self, group: str, *, table: str = TABLE_DEFAULT, keep: timedelta = KEEP_DEFAULT
    ) -> None:
        check_own_group(group)
        check_argument("table", table, str)
        check_argument("keep", keep, timedelta)
        if not _TABLE_NAME.fullmatch(table):
            raise ValidationError(
                "table: expected a name of lower-case letters, digits and underscores, found"
                f" {table!r}",
                fix="use a name of at most 51 characters, optionally with a schema and a dot"
                " before it",
            )
        if keep <= timedelta(0):
            raise ValidationError("keep: expected a time above 0")
        self._group = group
        self._table = table
        self._seconds = min(keep, KEEP_MAX).total_seconds()
        self._calls = count()

    @property
    def table_sql(self) -> str:
        """The statements that create the table, for programs with their own migrations."""
        return ";\n".join(self._definitions()) + ";\n"

    def creating(self, dialect: Dialect) -> Steps[None]:
        """Create the table if it is missing."""
        if dialect == "postgresql":
            yield _ONE_AT_A_TIME, {}
        for definition in self._definitions():
            yield definition, {}

    def accepting(
        self, dialect: Dialect, messages: Sequence[ReceivedMessage]
    ) -> Steps[list[ReceivedMessage]]:
        """Record that *messages* are done; return those that were not, in order."""
        identities = [self._identity(message) for message in messages]
        fresh: set[int] = set()
        for index in sorted(
            range(len(messages)), key=lambda index: tuple(identities[index].values())
        ):
            inserted = yield _INSERT.format(table=self._table), identities[index]
            if inserted:
                fresh.add(index)
        if next(self._calls) % FORGET_EVERY == 0:
            limit = FORGET_EVERY * FORGET_PER_MESSAGE * max(len(messages), 1)
            old = {"group": self._group, "seconds": self._seconds, "count": limit}
            yield _FORGET_OLD[dialect].format(table=self._table), old
        return [message for index, message in enumerate(messages) if index in fresh]

    def forgetting(self, message: ReceivedMessage) -> Steps[bool]:
        """Let *message* run again when it is redelivered; return whether it was done."""
        deleted = yield _FORGET.format(table=self._table), self._identity(message)
        return deleted > 0

    def _identity(self, message: ReceivedMessage) -> dict[str, str]:
        message_id = message.message_id or message.origin_message_id
        known = _storable(message_id)
        return {"group": self._group, "topic": message.origin_topic, "message_id": known}

    def _definitions(self) -> list[str]:
        index = f"{self._table.rpartition('.')[2]}_done_at"
        return [text.format(table=self._table, index=index) for text in (_TABLE, _INDEX)]


def _storable(message_id: str) -> str:
    """Return the stored form of an id: the id itself, or its digest.

    PostgreSQL cannot store the character 0 or half of a surrogate pair, and cannot index long
    texts. Producers may use all of these.
    """
    octets = message_id.encode("utf-8", "surrogatepass")
    if len(message_id) <= MESSAGE_ID_SIZE_MAX and "\0" not in message_id and _is_utf_8(octets):
        return message_id
    return f"sha256:{hashlib.sha256(octets).hexdigest()}"


def _is_utf_8(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


def check_done(verdict: object) -> None:
    """Raise UndoneError if a handler's *verdict* means that its work must be repeated."""
    if verdict not in (None, ConsumeStatus.SUCCESS, ConsumeStatus.COMMIT):
        raise UndoneError(verdict)


def hide_connection(wrapper: Callable[..., Any]) -> None:
    """Give *wrapper* the signature of its own parameter, the message, not the function's."""
    del wrapper.__wrapped__  # type: ignore[attr-defined]
