"""Questions to the cluster, as one caller. Recent answers are given again.

Each answer says when it was got. An answer that several brokers give together (:class:`Gathered`)
also names the brokers that gave their part, and those that did not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

from eruca import AsyncClient
from eruca.contract.errors import BrokerNotFoundError, ErucaError
from eruca.contract.fields import MASTER_ID
from eruca.contract.routes import BrokerGroup
from eruca.core.routing.route_table import address_for
from eruca.core.routing.services import CONTROLLER, TXN_CHECKER
from eruca.services.cluster import Instances, parsed, send_model
from eruca_console.cluster.brokers import KnownBrokers
from eruca_console.cluster.cache import AnswerCache, Answered
from eruca_console.core.busy_time import BusyTime

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Gathered(Generic[T]):
    """An answer that brokers give together.

    Attributes:
        value: The part of those that answered.
        silent: The others, each with its error.
        names: The live brokers that are not among the silent ones.
    """

    value: T
    silent: Mapping[str, ErucaError]
    names: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        """True if every broker has given its part."""
        return not self.silent


class Questions:
    """Ask as a caller, remember recent answers, and know the brokers: each subject needs it.

    Args:
        client: The caller's.
        known: The brokers that were seen lately.
        busy: Counts the time in which the cluster is asked, for all callers.
    """

    def __init__(
        self,
        client: AsyncClient,
        known: KnownBrokers,
        busy: BusyTime | None = None,
    ) -> None:
        self.client = client
        self.known = known
        self.cache = AnswerCache(busy=busy)
        seconds = client.settings.timeout_seconds
        self.checkers = Instances(TXN_CHECKER, client.context, timeout=seconds)
        self.controllers = Instances(CONTROLLER, client.context, timeout=seconds)

    async def brokers(self) -> Answered[Sequence[BrokerGroup]]:
        """Return the live brokers, by the name servers."""
        answered = await self.cache.get("brokers", self.client.admin.brokers)
        self.known.learn(group.broker_name for group in answered.value)
        return answered

    async def away(self) -> list[str]:
        """Return the brokers that were seen lately, and are registered no more."""
        live = {group.broker_name for group in (await self.brokers()).value}
        return self.known.without(live)

    async def absent(self) -> dict[str, ErucaError]:
        """Return the brokers that are away, each with the error that says so."""
        return {
            name: BrokerNotFoundError("no process of this name is registered")
            for name in await self.away()
        }

    def url_of(self, group: BrokerGroup) -> str | None:
        """Return the URL of a broker's master; None: none is registered."""
        network = self.client.settings.network
        for one in group.brokers:
            if one.broker_id == MASTER_ID:
                return address_for(one.urls, network)
        return None

    def master_url(self, group: BrokerGroup) -> str:
        """Return the URL of a broker's master.

        Raises:
            BrokerNotFoundError: None is registered.
        """
        url = self.url_of(group)
        if url is None:
            raise BrokerNotFoundError(f"{group.broker_name} has no registered master")
        return url

    async def any_broker_url(self) -> str:
        """Return the URL of a broker, for commands to copy: name servers know no groups."""
        try:
            groups = (await self.brokers()).value
        except ErucaError:
            groups = ()
        return next((url for url in map(self.url_of, groups) if url), "http://BROKER:10911")

    async def url_of_broker(self, broker_name: str) -> str:
        """Return the URL of a broker's master, for commands to copy."""
        try:
            groups = (await self.brokers()).value
        except ErucaError:
            groups = ()
        found = (self.url_of(one) for one in groups if one.broker_name == broker_name)
        return next((url for url in found if url), "http://BROKER:10911")

    async def asked(self, model: type[M], url: str, target: str) -> M:
        """Return the answer of the service at *url* as it is now; nothing is remembered.

        Raises:
            TransportError: It does not answer, or its answer is invalid.
            ErucaError: It refuses.
        """
        context = self.client.context
        seconds = context.settings.timeout_seconds
        answer = await send_model(context.transport, "GET", url, target, timeout=seconds)
        return parsed(model, answer, url + target)

    async def gathered(
        self,
        key: Hashable,
        ask: Callable[[dict[str, ErucaError]], Awaitable[T]],
        *,
        is_costly: bool = False,
    ) -> Answered[Gathered[T]]:
        """Return what brokers answer together to the question *key*.

        Args:
            key: As in the cache.
            ask: Asks them; it puts those that do not answer into its argument, with their errors.
            is_costly: As in the cache.
        """

        async def asked() -> Gathered[T]:
            silent: dict[str, ErucaError] = {}
            value = await ask(silent)
            live = {group.broker_name for group in (await self.brokers()).value}
            silent |= await self.absent()
            return Gathered(value, silent, sorted(live - silent.keys()))

        return await self.cache.get(key, asked, is_costly=is_costly)
