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
        group: The consumer group for which messages are done.
        table: Its table, which groups may share; ``schema.table`` where it is not on the path.
        keep: How long a message is known: longer than it can come again.

    Raises:
        ValidationError: A value cannot be used.
    """

    def create_table(self, connection: object) -> None:
        """Make the table if it is missing; committing is the caller's."""
        carry_out(self.creating, connection, to_change=False)

    def accept(self, connection: object, message: ReceivedMessage) -> bool:
        """Note that *message* is done, and tell whether its work is to be done.

        It is noted when the connection's transaction is committed, with the work. Waits where
        another transaction has noted it and is not over.

        Raises:
            ValidationError: The connection is of no known kind, or commits by itself.
        """
        return bool(self.accept_all(connection, [message]))

    def accept_all(
        self, connection: object, messages: Sequence[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        """Note that *messages* are done; return those whose work is to be done, in their order.

        Raises:
            ValidationError: As :meth:`accept`.
        """
        return carry_out(
            lambda dialect: self.accepting(dialect, messages), connection, to_change=True
        )

    def forget(self, connection: object, message: ReceivedMessage) -> bool:
        """Have *message* run when it comes again; tell whether it was done."""
        return carry_out(lambda _dialect: self.forgetting(message), connection, to_change=False)

    def once(
        self,
        connect: Callable[[], AbstractContextManager[C]],
    ) -> Callable[[Callable[[M, C], object]], Callable[[M], Any]]:
        """Make a handler of a function that works in a transaction and runs once a message.

        The function takes the message, or the list of those that are not done, and the connection.
        If it raises, or returns a verdict other than success, all is rolled back, and the message
        comes again. Where it returns None it is done, whatever ``none_is_failure`` says.

        Args:
            connect: Opens a block that commits at its end and rolls back if it is left with an
                exception: ``pool.connection``, ``engine.begin``, ``sessionmaker.begin``,
                ``lambda: psycopg.connect(url)``.
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
