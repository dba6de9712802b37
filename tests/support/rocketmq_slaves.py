"""A slave as RocketMQ's is, as far as its master can see: it refuses what that refuses.

Source: RocketMQ 5.3, ``DefaultHAClient.dispatchReadRequest``, ``CommitLog.appendData``.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from support.patience import PATIENCE_SECONDS

_HEADER = struct.Struct(">qi")
_BUFFER_SIZE = 4 * 1024**2


class RocketMqSlave:
    """The log of a slave; it survives its connections.

    Args:
        segment_bytes: Bytes of each file of the log.
    """

    def __init__(self, segment_bytes: int) -> None:
        self.begin: int | None = None  # None: the log is empty
        self.log = bytearray()
        self.frame_count = 0
        self.heartbeat_count = 0
        self._segment_bytes = segment_bytes

    @property
    def end(self) -> int:
        """Log offset after its last byte; 0 if it is empty."""
        return 0 if self.begin is None else self.begin + len(self.log)

    def connect(self, port: int, *, request: int | None = None) -> SlaveConnection:
        """Connect to the master at *port*, and request the log from its end, or from elsewhere."""
        connection = SlaveConnection(self, port)
        connection.report(self.end if request is None else request)
        return connection

    def take(self, log_offset: int, data: bytes) -> None:
        """Append a frame."""
        assert _HEADER.size + len(data) <= _BUFFER_SIZE, "it has no room for the frame"
        if self.end:
            assert log_offset == self.end, "master pushed offset not equal the max phy offset"
        if not data:
            self.heartbeat_count += 1
            return
        if self.begin is None:
            assert log_offset % self._segment_bytes == 0, "a log begins with a file"
            self.begin = log_offset
        room = self._segment_bytes - log_offset % self._segment_bytes
        assert len(data) <= room, "the frame does not fit into the file"
        self.frame_count += 1
        self.log += data


class SlaveConnection:
    """One connection of a slave to its master."""

    def __init__(self, slave: RocketMqSlave, port: int) -> None:
        self._slave = slave
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
        self._received = b""

    def __enter__(self) -> SlaveConnection:
        return self

    def __exit__(self, *failure: object) -> None:
        self._socket.close()

    def report(self, log_offset: int) -> None:
        """Report a log offset."""
        self._socket.sendall(struct.pack(">q", log_offset))

    def take_until(self, is_enough: Callable[[], bool]) -> None:
        """Take and acknowledge frames until it *is_enough*."""
        while not is_enough():
            assert self.take_one(), "the master has closed the connection"

    def take_one(self) -> bool:
        """Take the next frame, and report; return False if the master has closed.

        RocketMQ's slave reports after each frame, and by the clock rather than after heartbeats.
        """
        header = self._exactly(_HEADER.size)
        if header is None:
            return False
        log_offset, size = _HEADER.unpack(header)
        data = self._exactly(size)
        if data is None:
            return False
        self._slave.take(log_offset, data)
        self.report(self._slave.end)
        return True

    def is_closed(self) -> bool:
        """Wait until the master sends something or closes the connection; return whether it has."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes | None:
        while len(self._received) < size:
            try:
                more = self._socket.recv(1024**2)
            except ConnectionResetError:
                return None
            if not more:
                return None
            self._received += more
        data, self._received = self._received[:size], self._received[size:]
        return data
