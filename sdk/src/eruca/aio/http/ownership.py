"""Ownership of connections and their waiters: the loop and the process that first used them.

A forked child has copies of its parent's sockets. If it used them, both would read answers meant
for the other; so it is told to make a client of its own. In another event loop what waits would
never be woken.
"""

from __future__ import annotations

import asyncio
import os

from eruca.contract.errors import ClosedError


class Ownership:
    """Remembers the first loop and process that used something, and refuses others."""

    __slots__ = ("_loop", "_process_id")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process_id = 0

    @property
    def is_ours(self) -> bool:
        """True if this process has used it; otherwise no connection of it is open."""
        return self._process_id == os.getpid()

    def check(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, which becomes the owner if there is none yet.

        Raises:
            ClosedError: Another loop, or the process that this one was forked from, owns it.
        """
        loop = asyncio.get_running_loop()
        if self._loop is loop and self._process_id == os.getpid():
            return loop
        if self._loop is None:
            self._loop, self._process_id = loop, os.getpid()
            return loop
        if self._process_id != os.getpid():
            raise ClosedError(
                "the client was used before this process was forked from another",
                fix="make a client in each process, after the fork",
            )
        raise ClosedError(
            "the client belongs to another event loop",
            fix="make a client in each loop, or use eruca.Client from several threads",
        )
