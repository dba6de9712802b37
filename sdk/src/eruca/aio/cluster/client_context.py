"""The context that a client's producers, consumers and administration share.

:class:`eruca.AsyncClient` makes one context and passes it to every object that it makes. These
objects do not know the client. They do not know one another either, except for their order of
closing.

The first client loads the models of routes. ``import eruca`` does not load them, and neither does
the first send, because loading would take up its timeout. Parts that only administration needs are
loaded at their first use.

Concurrency rule: the client's.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from eruca.aio.cluster.following import FollowingTransport
from eruca.aio.cluster.name_servers import NameServers
from eruca.aio.http.authorized import authorized
from eruca.aio.http.clients import http1_transport
from eruca.aio.http.credentials import Credentials
from eruca.aio.http.transport import HttpTransport
from eruca.contract.errors import ClosedError
from eruca.core.call_statistics import ClientStatistics
from eruca.core.client_settings import ClientSettings

if TYPE_CHECKING:
    from eruca.aio.cluster.broker_api import BrokerApi

HELD_CONNECTIONS_MAX: Final = 10_000  # to one service, which holds no more requests by default


class Child(Protocol):
    """An object that was made from a client and must be closed before it."""

    async def leave(self, *, drain: bool, failed: bool) -> None:
        """Close: finish pending work if *drain*, unless the program has *failed*."""
        ...


_Made = TypeVar("_Made", bound=Child)


class ClientContext:
    """One client's shared parts.

    Args:
        settings: The client's settings.
        credentials: For the requests. The headers are added whatever transport carries them; the
            TLS context is for the client's own transports, and a given one has its own.
        hot_transport: Carries sends and pulls; None: the SDK's own HTTP/1.1 client.
        transport: Carries all other requests; None: likewise.

    Attributes:
        statistics: The client's calls: sends, pulls and handlers.
        masters_book: The masters that replicas have named in redirects.
        hot_transport: Carries frequent requests with an immediate answer: sends.
        held_transport: Carries requests that a server may hold: those of consumers to brokers, and
            of transaction producers to checkers. Each held request occupies a connection. In a
            shared pool, many consumers or producers would block every send.
        standby_transport: Carries pulls to standbys. It follows no redirect, by which the client
            would take the standby to be gone.
        patient_transport: Carries consumers' requests that must not fail: acknowledgements. It
            waits for a broker's master if there is none now.
        transport: Carries all other requests; waits likewise.
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
        self.statistics = ClientStatistics(time.monotonic)
        if hot_transport is not None:
            hot = held = authorized(hot_transport, credentials)
        else:
            hot = http1_transport(credentials)
            held = http1_transport(credentials, connections_max=HELD_CONNECTIONS_MAX)
        plain = authorized(transport, credentials) if transport else http1_transport(credentials)
        self._transports = [hot, plain] if held is hot else [hot, plain, held]
        self.name_servers = NameServers(settings.namesrv_urls, plain)
        from eruca.aio.cluster.routes import Routes
        from eruca.core.routing.master_book import MasterBook

        # A client certificate needs no care: no server can use it elsewhere.
        self.masters_book = MasterBook(settings.network, is_wary=credentials.has_headers)
        self.routes = Routes(
            self.name_servers,
            self.masters_book,
            network=settings.network,
            timeout=settings.timeout_seconds,
        )
        self.hot_transport = self._following(hot)
        self.held_transport = self._following(held, is_held=True)
        self.standby_transport = held
        self.patient_transport = self._following(held, waits=True)
        self.transport = self._following(plain, waits=True)
        self._broker_api: BrokerApi | None = None
        self._children: dict[Child, None] = {}  # in the order of creation
        self._closing: asyncio.Task[None] | None = None
        self._is_closed = False

    def _following(
        self, transport: HttpTransport, *, waits: bool = False, is_held: bool = False
    ) -> HttpTransport:
        return FollowingTransport(
            transport,
            self.masters_book,
            on_redirect=self.routes.refresh_those_at,
            waits=waits,
            is_held=is_held,
        )

    @property
    def broker_api(self) -> BrokerApi:
        """The broker's operations except the hot routes."""
        if self._broker_api is None:
            from eruca.aio.cluster.broker_api import (
                BrokerApi,  # pydantic models: 0.2 s, when first needed
            )

            self._broker_api = BrokerApi(
                self.transport,
                self.settings.timeout_seconds,
                name_servers=self.name_servers,
                network=self.settings.network,
            )
        return self._broker_api

    def check_open(self) -> None:
        """Raise ClosedError if the client has been closed."""
        if self._is_closed:
            raise ClosedError("the client is closed")

    def adopt(self, child: _Made) -> _Made:
        """Return *child*; the client closes it at the latest when the client itself closes."""
        self._children[child] = None
        return child

    def forget(self, child: Child) -> None:
        """Drop a child that has been closed."""
        self._children.pop(child, None)

    async def close(self, *, drain: bool, failed: bool) -> None:
        """Close all adopted objects, then the connections; closing again does nothing.

        The last one made is closed first, because a consumer's last handlers may send through a
        producer that is older. If closing one fails, the others are still closed, and the error is
        raised at the end.

        Cancelling the caller does not cancel the closing. Only a second call, without *drain*, ends
        it early.
        """
        if self._is_closed:
            return
        if self._closing is None or not drain:
            closing = self._close(self._closing, drain=drain, failed=failed)
            self._closing = asyncio.create_task(closing, name="eruca client closes")
        while not self._closing.done():  # another close may have replaced it
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
        await asyncio.gather(*(transport.close() for transport in self._transports))
        if errors:
            first, *others = errors
            for other in others:
                first.add_note(f"another close failed, too: {other!r}")
            raise first
