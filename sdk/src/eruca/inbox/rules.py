"""An inbox's SQL statements, in order; the two inboxes execute them.

The row is inserted first, and that decides: ``ON CONFLICT DO NOTHING`` waits for a transaction that
has inserted the same row and is not over. The rows of a batch are inserted in one order everywhere,
or two members with the same messages could wait for each other.

Old rows are deleted by every 100th call, the first included, ten times as many as may have come;
it leaves those that others are deleting. So the table holds what came within ``keep``, and little
more.

An id that no database would take is known by its digest.
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
Steps = Generator[Statement, int, T]  # is sent how many rows each statement touched

TABLE_DEFAULT: Final = "eruca_inbox"
KEEP_DEFAULT: Final = timedelta(days=7)  # more than twice what brokers keep by default
KEEP_MAX: Final = timedelta(days=36_500)  # as good as for ever, which databases cannot count
FORGET_EVERY: Final = 100  # calls
FORGET_PER_MESSAGE: Final = 10  # so that even a table that was left alone becomes small again

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
# Two that find the table missing would both make it, and PostgreSQL refuse the second.
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
    """A handler returned a verdict other than success: its transaction is to be rolled back."""

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
                f"table: {table!r} is no name in small letters, digits and underscores",
                fix="use one of at most 51 characters, with or without its schema before a point",
            )
        if keep <= timedelta(0):
            raise ValidationError("keep: a message is to be known for some time")
        self._group = group
        self._table = table
        self._seconds = min(keep, KEEP_MAX).total_seconds()
        self._calls = count()

    @property
    def table_sql(self) -> str:
        """The statements that make the table, for those who keep migrations."""
        return ";\n".join(self._definitions()) + ";\n"

    def creating(self, dialect: Dialect) -> Steps[None]:
        """Make the table if it is missing."""
        if dialect == "postgresql":
            yield _ONE_AT_A_TIME, {}
        for definition in self._definitions():
            yield definition, {}

    def accepting(
        self, dialect: Dialect, messages: Sequence[ReceivedMessage]
    ) -> Steps[list[ReceivedMessage]]:
        """Note that *messages* are done; return those that were not, in their order."""
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
        """Have *message* run when it comes again; return whether it was done."""
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
    """Return what stands for an id in a table: itself, or its digest.

    PostgreSQL takes no character 0 and no half of a surrogate pair, and indexes nothing long;
    producers are free to write all of that.
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
    """Raise UndoneError if a handler's *verdict* is that its work is to be done again."""
    if verdict not in (None, ConsumeStatus.SUCCESS, ConsumeStatus.COMMIT):
        raise UndoneError(verdict)


def hide_connection(wrapper: Callable[..., Any]) -> None:
    """Have *wrapper* show its own parameter, the message, and not those of what it wraps."""
    del wrapper.__wrapped__  # type: ignore[attr-defined]
