"""This machine's address, for the unique ids of its messages."""

from __future__ import annotations

import random
import socket
from typing import Final

_FAR_AWAY: Final = ("192.0.2.1", 9)  # reserved for documentation (RFC 5737): no host has it


def local_address() -> bytes:
    """Return four bytes that distinguish this machine from others: its address, or random bytes.

    Nothing is sent: connecting a datagram socket only asks the kernel for the route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_FAR_AWAY)
            return socket.inet_aton(probe.getsockname()[0])
        except OSError:  # no network except loopback
            return random.randbytes(4)
