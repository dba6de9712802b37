"""The channel between the service and a worker: messages, some of which carry a lent connection.

Each message is a packet, which arrives completely or not at all. Sending never waits: a packet for
which the other end has no room now is kept until it has. There are few messages per step, so their
number is bounded by the number of steps.

Source: unix(7), SOCK_SEQPACKET and SCM_RIGHTS.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

WORD_SIZE_MAX: Final = 64 * 1024  # bytes

Hear: TypeAlias = Callable[[bytes, socket.socket | None], None]


class _Word(NamedTuple):
    data: bytes
    lent: socket.socket | None  # one of our own


class Channel:
    """One end.

    Args:
        end: The socket.
        hear: Is told each word of the other end's, and owns the connection that came with it, which
            does not block.
        lost: Is told when the other end is gone.
    """

    def __init__(self, end: socket.socket, hear: Hear, lost: Callable[[], None]) -> None:
        end.settimeout(0)
        self._end = end
        self._hear = hear
        self._lost = lost
        self._untold: deque[_Word] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end, self._readable)

    def tell(self, data: bytes, lent: socket.socket | None = None) -> None:
        """Tell a word, of ``WORD_SIZE_MAX`` bytes at most; nobody hears it once the end is gone.

        A connection that is *lent* does not block, here as there: that is the connection's, and no
        holder's own.
        """
        if self._end.fileno() < 0:
            return
        if self._untold or not self._sent(data, lent):
            if not self._untold:
                self._loop.add_writer(self._end, self._writable)
            self._untold.append(_Word(data, None if lent is None else lent.dup()))

    def close(self) -> None:
        """Hear and tell nothing more; *lost* is not told."""
        if self._end.fileno() < 0:
            return
        self._loop.remove_reader(self._end)
        self._loop.remove_writer(self._end)
        self._end.close()
        while self._untold:
            self._drop()

    def _sent(self, data: bytes, lent: socket.socket | None) -> bool:
        try:
            if lent is None:
                self._end.send(data)
            else:
                socket.send_fds(self._end, [data], [lent.fileno()])
        except BlockingIOError:
            return False
        except ConnectionError:
            pass  # it is about to be heard
        return True

    def _writable(self) -> None:
        while self._untold and self._sent(*self._untold[0]):
            self._drop()
        if not self._untold:
            self._loop.remove_writer(self._end)

    def _drop(self) -> None:
        lent = self._untold.popleft().lent
        if lent is not None:
            lent.close()

    def _readable(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._end, WORD_SIZE_MAX, 1)
        except BlockingIOError:
            return
        except ConnectionError:
            data, descriptors = b"", []
        if data:
            lent = socket.socket(fileno=descriptors[0]) if descriptors else None
            if lent is not None:
                lent.settimeout(0)
            self._hear(data, lent)
        else:
            self.close()
            self._lost()
