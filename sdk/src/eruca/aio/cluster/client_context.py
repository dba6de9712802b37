"""The context that a client's producers, consumers and administration share.

:class:`eruca.AsyncClient` makes one of these and hands it to whatever it makes. None of them knows
the client, nor, but for their order of closing, one another.

Routes' models and httpx are loaded with the first client: not with ``import eruca``, nor in the
middle of the first send, whose time-out they would take. What only administration uses is loaded
when it is used.

Concurrency rule: the client's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from eruca.aio.cluster.name_servers import NameServers
from eruca.aio.http.clients import http1_transport, httpx_transport
from eruca.aio.http.credentials import Credentials
from eruca.aio.http.transport import HttpTransport
from eruca.contract.errors import ClosedError
from eruca.core.client_settings import ClientSettings

if TYPE_CHECKING:
    from eruca.aio.cluster.broker_api import BrokerApi

HELD_CONNECTIONS_MAX: Final = 10_000  # to one service, which holds no more requests by default


class Child(Protocol):
    """Something made from a client that has to be closed before it."""

    async def leave(self, *, drain: bool, failed: bool) -> None:
        """Close: finish what is under way if *drain*, unless the program has *failed*."""
        ...


_Made = TypeVar("_Made", bound=Child)


class ClientContext:
    """One client's shared parts.

    Args:
        settings: What the client works with.
        credentials: Of the requests of its own transports; a given transport brings its own.
        hot_transport: Carries sends and pulls; None: the SDK's own HTTP/1.1 client.
        transport: Carries the rest; None: httpx.

    Attributes:
        hot_transport: Carries what is answered at once, and often: sends.
        held_transport: Carries what consumers ask of brokers, and transaction producers of
            transaction checkers. Much of that is held, and what is held keeps a connection: where
            it shared a pool with the rest, many consumers or producers would stop every send.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        credentials: Credentials,
        hot_transport: HttpTransport | None,
        transport: HttpTransport | None,
    ) -> None:
        self.settings = settings
        self.credentials = credentials
        self.hot_transport = hot_transport or http1_transport(credentials)
        self.held_transport = hot_transport or http1_transport(
            credentials, connections_max=HELD_CONNECTIONS_MAX
        )
        self.transport = transport or httpx_transport(credentials)
        self.name_servers = NameServers(settings.namesrv_urls, self.transport)
        from eruca.aio.cluster.routes import Routes

        self.routes = Routes(
            self.name_servers, network=settings.network, timeout=settings.timeout_seconds
        )
        self._broker_api: BrokerApi | None = None
        self._children: dict[Child, None] = {}  # in the order they were made
        self._closing: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def broker_api(self) -> BrokerApi:
        """The broker's operations besides the hot routes."""
        if self._broker_api is None:
            from eruca.aio.cluster.broker_api import (
                BrokerApi,  # pydantic models: 0.2 s, when first needed
            )

            self._broker_api = BrokerApi(self.transport, self.settings.timeout_seconds)
        return self._broker_api

    def check_open(self) -> None:
        """Raise ClosedError if the client has been closed."""
        if self._is_closed:
            raise ClosedError("the client is closed")

    def adopt(self, child: _Made) -> _Made:
        """Return *child*, which is closed at the latest when the client is."""
        self._children[child] = None
        return child

    def forget(self, child: Child) -> None:
        """Drop something that has been closed."""
        self._children.pop(child, None)

    async def close(self, *, drain: bool, failed: bool) -> None:
        """Close what was adopted, then the connections; closing again does nothing.

        The last one made comes first: a consumer's last handlers may send by a producer that was
        there before it. What one of them fails at keeps none of the others open; it is raised in
        the end.

        Whoever gives up waiting does not keep it from being gone through with; that ends early only
        where it is closed again, without *drain*.
        """
        if self._is_closed:
            return
        if self._closing is None or not drain:
            closing = self._close(self._closing, drain=drain, failed=failed)
            self._closing = asyncio.create_task(closing, name="eruca client closes")
        while not self._closing.done():  # another may have taken its place
            await asyncio.wait((self._closing,))
        self._closing.result()

    async def _close(self, before: asyncio.Task[None] | None, *, drain: bool, failed: bool) -> None:
        if before is not None:
            before.cancel()
            await asyncio.gather(before, return_exceptions=True)
        errors: list[BaseException] = []
        for child in tuple(reversed(self._children)):
            leaving = child.leave(drain=drain, failed=failed)
            [outcome] = await asyncio.gather(leaving, return_exceptions=True)
            if isinstance(outcome, BaseException):
                errors.append(outcome)
        self._is_closed = True
        await self.routes.close()
        transports = [self.hot_transport, self.transport]
        if self.held_transport is not self.hot_transport:
            transports.append(self.held_transport)
        await asyncio.gather(*(transport.close() for transport in transports))
        if errors:
            first, *others = errors
            for other in others:
                first.add_note(f"closing failed elsewhere, too: {other!r}")
            raise first
