"""Notify systemd that the service has started, or stops: ``Type=notify`` of its unit.

A message is one datagram to the socket in ``NOTIFY_SOCKET``. Without that variable there is nobody
to notify.

Source: ``sd_notify(3)``.
"""

from __future__ import annotations

import os
import socket
from typing import Final

import structlog

SOCKET_VARIABLE: Final = "NOTIFY_SOCKET"

_log = structlog.get_logger()


def notify_started(status: str) -> None:
    """Say that the service has started; *status* is shown by ``systemctl status``."""
    _send(f"READY=1\nSTATUS={status}")


def notify_stopping() -> None:
    """Say that the service begins to stop."""
    _send("STOPPING=1\nSTATUS=handing over, then letting requests end")


def _send(message: str) -> None:
    path = os.environ.get(SOCKET_VARIABLE)
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path  # @: an abstract socket
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as datagrams:
            datagrams.sendto(message.encode(), socket.MSG_DONTWAIT, address)
    except OSError as error:
        _log.warning("the service manager cannot be notified", socket=path, reason=str(error))
