"""The directory of brokers: their names, their URLs, and the addresses in their records.

The name servers are asked at most every few seconds, and at once if a broker did not answer at its
known address. Callers that arrive during such a request wait for the same answer. A failure of the
name servers is cached, too; otherwise each step of a request would wait for them in turn.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from eruca.contract.errors import ErucaError
from eruca.contract.records import Host
from eruca.contract.routes import BrokerGroup
from eruca.core.routing.replicas import reader_of, store_hosts_of
from eruca.core.routing.route_table import address_for
from eruca_chassis.clock import Clock

if TYPE_CHECKING:
    from eruca import AsyncClient

REMEMBER_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class KnownBrokers:
    """The name servers' answer."""

    urls: dict[str, str] = field(default_factory=dict)  # by broker name; the master's, if there is
    # The name of the broker whose records have the address: replicas and former masters included.
    hosts: dict[Host, str] = field(default_factory=dict)
    fault: str | None = None  # why the other fields are an earlier answer, or empty


class BrokerDirectory:
    """Asks the name servers, and caches the answer briefly."""

    def __init__(self, client: AsyncClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known = KnownBrokers()
        self._good_until = 0.0
        self._asking = asyncio.Lock()

    def forget(self) -> None:
        """Drop the cached answer: a broker did not answer at its address."""
        if self._known.fault is None:  # else the name servers failed a moment ago, too
            self._good_until = 0.0

    async def brokers(self) -> KnownBrokers:
        """Return the living brokers; the last known ones if no name server answers."""
        async with self._asking:
            if self._clock.monotonic() >= self._good_until:
                self._known = await self._ask()
                self._good_until = self._clock.monotonic() + REMEMBER_SECONDS
            return self._known

    async def _ask(self) -> KnownBrokers:
        try:
            groups = await self._client.admin.brokers()
            return known_of(groups, self._client.settings.network)
        except (ErucaError, ValueError) as error:  # ValueError: a broker without an address
            return KnownBrokers(self._known.urls, self._known.hosts, str(error))


def known_of(groups: list[BrokerGroup], network: str) -> KnownBrokers:
    """Return what *groups* say, with the URLs for clients in *network*."""
    urls: dict[str, str] = {}
    hosts: dict[Host, str] = {}
    for group in groups:
        if (broker := reader_of(group)) is not None:
            urls[group.broker_name] = address_for(broker.urls, network)
            hosts |= dict.fromkeys(store_hosts_of(group), group.broker_name)
    return KnownBrokers(urls, hosts)
