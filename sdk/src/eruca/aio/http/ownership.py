"""Ownership of connections and their waiters: the loop and the process that first used them.

A forked child has copies of its parent's sockets. If it used them, each would read answers meant
for the other. So the child gets an error that tells it to make its own client. In another event
loop, waiters would never be woken.
"""

from __future__ import annotations

import asyncio

from eruca.aio.process import process_id
from eruca.contract.errors import ClosedError


class Ownership:
    """Stores the first loop and process that used an object, and refuses others."""

    __slots__ = ("_loop", "_process_id")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process_id = 0

    @property
    def is_ours(self) -> bool:
        """True if this process has used the object; otherwise it has no open connection."""
        return self._process_id == process_id()

    def check(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, which becomes the owner if there is none yet.

        Raises:
            ClosedError: The owner is another loop, or the parent process of a fork.
        """
        loop = asyncio.get_running_loop()
        if self._loop is loop and self._process_id == process_id():
            return loop
        if self._loop is None:
            self._loop, self._process_id = loop, process_id()
            return loop
        if self._process_id != process_id():
            raise ClosedError(
                "the client was used before this process was forked",
                fix="make a client in each process, after the fork",
            )
        raise ClosedError(
            "the client belongs to another event loop",
            fix="make a client in each loop, or use eruca.Client from several threads",
        )
