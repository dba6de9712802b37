"""The channel between the service and a worker: messages, some of which carry a lent connection.

Each message is a packet, which arrives completely or not at all. Sending never waits: if the other
end has no room for a packet, it is queued. There are few messages per step, so the number of steps
bounds the queue.

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
    """One end of the channel.

    Args:
        end: The socket.
        hear: Called with each message from the other end. It owns the connection that came with
            the message, which does not block.
        lost: Called when the other end has closed.
    """

    def __init__(self, end: socket.socket, hear: Hear, lost: Callable[[], None]) -> None:
        end.settimeout(0)
        self._end = end
        self._hear = hear
        self._lost = lost
        self._unsent: deque[_Word] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end, self._readable)

    def tell(self, data: bytes, lent: socket.socket | None = None) -> None:
        """Send a message of at most ``WORD_SIZE_MAX`` bytes; drop it if the other end has closed.

        A *lent* connection does not block, here as in the other process: that is a property of the
        connection, not of its holders.
        """
        if self._end.fileno() < 0:
            return
        if self._unsent or not self._sent(data, lent):
            if not self._unsent:
                self._loop.add_writer(self._end, self._writable)
            self._unsent.append(_Word(data, None if lent is None else lent.dup()))

    def close(self) -> None:
        """Stop sending and receiving; *lost* is not called."""
        if self._end.fileno() < 0:
            return
        self._loop.remove_reader(self._end)
        self._loop.remove_writer(self._end)
        self._end.close()
        while self._unsent:
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
            pass  # the reader callback is about to notice
        return True

    def _writable(self) -> None:
        while self._unsent and self._sent(*self._unsent[0]):
            self._drop()
        if not self._unsent:
            self._loop.remove_writer(self._end)

    def _drop(self) -> None:
        lent = self._unsent.popleft().lent
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
