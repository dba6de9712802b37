"""The inbox of programs with async."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import Any, TypeVar

from eruca.core.consuming.consume_status import ConsumeStatus
from eruca.core.messages.received_message import ReceivedMessage
from eruca.inbox.async_connections import block_of, carry_out_async
from eruca.inbox.connections import check_commits
from eruca.inbox.rules import InboxRules, UndoneError, check_done, hide_connection

C = TypeVar("C")
M = TypeVar("M", ReceivedMessage, list[ReceivedMessage])


class AsyncInbox(InboxRules):
    """One group's inbox. Any number of tasks may share it.

    Args:
        group: The consumer group for which messages are done.
        table: Its table, which groups may share; ``schema.table`` where it is not on the path.
        keep: How long a message is known: longer than it can come again.

    Raises:
        ValidationError: A value cannot be used.
    """

    async def create_table(self, connection: object) -> None:
        """Make the table if it is missing; committing is the caller's."""
        await carry_out_async(self.creating, connection, to_change=False)

    async def accept(self, connection: object, message: ReceivedMessage) -> bool:
        """Note that *message* is done, and tell whether its work is to be done.

        It is noted when the connection's transaction is committed, with the work. Waits where
        another transaction has noted it and is not over.

        Raises:
            ValidationError: The connection is of no known kind, or commits by itself.
        """
        return bool(await self.accept_all(connection, [message]))

    async def accept_all(
        self, connection: object, messages: Sequence[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        """Note that *messages* are done; return those whose work is to be done, in their order.

        Raises:
            ValidationError: As :meth:`accept`.
        """
        return await carry_out_async(
            lambda dialect: self.accepting(dialect, messages), connection, to_change=True
        )

    async def forget(self, connection: object, message: ReceivedMessage) -> bool:
        """Have *message* run when it comes again; tell whether it was done."""
        return await carry_out_async(
            lambda _dialect: self.forgetting(message), connection, to_change=False
        )

    def once(
        self,
        connect: Callable[
            [], AbstractAsyncContextManager[C] | Awaitable[AbstractAsyncContextManager[C]]
        ],
    ) -> Callable[[Callable[[M, C], Awaitable[object]]], Callable[[M], Awaitable[Any]]]:
        """Make a handler of a function that works in a transaction and runs once a message.

        The function takes the message, or the list of those that are not done, and the connection.
        If it raises, or returns a verdict other than success, all is rolled back, and the message
        comes again. Where it returns None it is done, whatever ``none_is_failure`` says.

        Args:
            connect: Opens a block that commits at its end and rolls back if it is left with an
                exception: ``pool.connection``, ``engine.begin``, ``async_sessionmaker.begin``,
                ``lambda: psycopg.AsyncConnection.connect(url)``.
        """

        def decorate(
            function: Callable[[M, C], Awaitable[object]],
        ) -> Callable[[M], Awaitable[Any]]:
            @wraps(function)
            async def handle(given: M) -> Any:  # noqa: ANN401 - a handler's verdict
                try:
                    async with await block_of(connect) as connection:
                        check_commits(connection)
                        verdict = await self._run(function, connection, given)
                        check_done(verdict)
                except UndoneError as undone:
                    return undone.verdict
                return ConsumeStatus.SUCCESS if verdict is None else verdict

            hide_connection(handle)
            return handle

        return decorate

    async def _run(
        self, function: Callable[[M, C], Awaitable[object]], connection: C, given: M
    ) -> object:
        if isinstance(given, ReceivedMessage):
            is_fresh = await self.accept(connection, given)
            return await function(given, connection) if is_fresh else None
        fresh = await self.accept_all(connection, given)
        return await function(fresh, connection) if fresh else None
