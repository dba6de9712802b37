"""The inbox of programs without async.

Generated from ``eruca.inbox.asynchronous`` by ``sdk/tools/generate_sync.py``; change that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, TypeVar

from eruca.core.consuming.consume_status import ConsumeStatus
from eruca.core.messages.received_message import ReceivedMessage
from eruca.inbox.connections import carry_out, check_commits
from eruca.inbox.rules import InboxRules, UndoneError, check_done, hide_connection

C = TypeVar("C")
M = TypeVar("M", ReceivedMessage, list[ReceivedMessage])


class Inbox(InboxRules):
    """One group's inbox. Any number of threads may share it.

    Args:
        group: The consumer group that processes the messages.
        table: The inbox's table, which groups may share; ``schema.table`` if it is not on the path.
        keep: How long a message is remembered; longer than it can be redelivered.

    Raises:
        ValidationError: A value is invalid.
    """

    def create_table(self, connection: object) -> None:
        """Create the table if it is missing; the caller commits."""
        carry_out(self.creating, connection, to_change=False)

    def accept(self, connection: object, message: ReceivedMessage) -> bool:
        """Record that *message* is done; return whether the caller must do its work.

        The record is committed with the work, in the connection's transaction. If another open
        transaction has recorded the message, the call waits for its end.

        Raises:
            ValidationError: The connection's type is unknown, or it commits each statement itself.
        """
        return bool(self.accept_all(connection, [message]))

    def accept_all(
        self, connection: object, messages: Sequence[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        """Record that *messages* are done; return those whose work the caller must do, in order.

        Raises:
            ValidationError: As :meth:`accept`.
        """
        return carry_out(
            lambda dialect: self.accepting(dialect, messages), connection, to_change=True
        )

    def forget(self, connection: object, message: ReceivedMessage) -> bool:
        """Let *message* run again when it is redelivered; return whether it was done."""
        return carry_out(lambda _dialect: self.forgetting(message), connection, to_change=False)

    def once(
        self,
        connect: Callable[[], AbstractContextManager[C]],
    ) -> Callable[[Callable[[M, C], object]], Callable[[M], Any]]:
        """Turn a function that works in a transaction into a handler that runs once per message.

        The function takes the connection and the message, or the list of messages that are not
        done. If it raises or returns a verdict other than success, the transaction is rolled back,
        and the message is redelivered. If it returns None, the message is done, regardless of
        ``none_is_failure``.

        Args:
            connect: Opens a context manager that commits at its end and rolls back on an exception:
                ``pool.connection``, ``engine.begin``, ``sessionmaker.begin``, ``lambda:
                psycopg.connect(url)``.
        """

        def decorate(
            function: Callable[[M, C], object],
        ) -> Callable[[M], Any]:
            @wraps(function)
            def handle(given: M) -> Any:  # noqa: ANN401 - a handler's verdict
                try:
                    with connect() as connection:
                        check_commits(connection)
                        verdict = self._run(function, connection, given)
                        check_done(verdict)
                except UndoneError as undone:
                    return undone.verdict
                return ConsumeStatus.SUCCESS if verdict is None else verdict

            hide_connection(handle)
            return handle

        return decorate

    def _run(self, function: Callable[[M, C], object], connection: C, given: M) -> object:
        if isinstance(given, ReceivedMessage):
            is_fresh = self.accept(connection, given)
            return function(given, connection) if is_fresh else None
        fresh = self.accept_all(connection, given)
        return function(fresh, connection) if fresh else None
