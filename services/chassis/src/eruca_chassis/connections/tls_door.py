"""The door for TLS: handshakes limited in time and number, and an answer to plain HTTP.

The first bytes are looked at without being taken. A client that speaks plain HTTP here would only
see the connection end. It gets an answer 400 instead, which says what to write.

*The context* is chosen for each connection, so a renewed certificate is used at once
(:mod:`eruca_chassis.sockets.tls`).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from eruca.contract.errors import RequestError
from eruca_chassis.asgi import new_request_id
from eruca_chassis.connections.entrance import Door
from eruca_chassis.connections.refusing import last_answer
from eruca_chassis.sockets.tls import ServerTls

_HANDSHAKE: Final = 0x16  # content type of a TLS record with a handshake (RFC 8446 section 5.1)
_PLAIN: Final = frozenset(range(ord("A"), ord("Z") + 1))  # first bytes of HTTP methods


class TlsDoor(Door):
    """The door of TCP sockets for TLS.

    Args:
        listeners: The sockets.
        tls: Certificates.
        make_protocol: Makes the protocol of a connection whose handshake is over.
        handshake_seconds: Limit of a handshake, the time before its first byte included.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        tls: ServerTls,
        make_protocol: Callable[[], asyncio.Protocol],
        *,
        handshake_seconds: float,
    ) -> None:
        self._tls = tls
        self._make_protocol = make_protocol
        super().__init__(listeners, entering_seconds=handshake_seconds)

    async def _enter(self, accepted: socket.socket) -> None:
        """Make a connection of the service of an accepted socket, or close it."""
        reason = "crowded"  # if it is cut because others came
        try:
            async with asyncio.timeout(self._seconds):
                first = await self._first_byte(accepted)
                if first != _HANDSHAKE:
                    reason = self._refuse(accepted, first)
                    return
                await self._loop.connect_accepted_socket(
                    self._make_protocol,
                    accepted,
                    ssl=self._tls.context,
                    ssl_handshake_timeout=self._seconds,
                )
                reason = ""
        except TimeoutError:
            reason = "timeout"
        except ssl.SSLError as error:
            reason = "certificate" if "CERTIFICATE" in (error.reason or "") else "protocol"
        except OSError:
            reason = "closed"
        finally:
            if reason:
                self._tls.failures.labels(reason).inc()
                accepted.close()

    @staticmethod
    def _refuse(accepted: socket.socket, first: int | None) -> str:
        """Answer plain HTTP, as far as the socket takes it at once; return the reason."""
        if first is None:
            return "closed"
        if first in _PLAIN:
            error = RequestError(
                "expected a TLS handshake, found plain HTTP",
                fix="write https:// instead of http:// in the URL of this service",
            )
            accepted.recv(64 * 1024)  # unread bytes would reset the connection, and the answer
            accepted.send(last_answer(error, new_request_id()))
            accepted.shutdown(socket.SHUT_WR)
        return "plain"
