"""The last uses of API keys, as the services that answer know them."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from eruca.aio.client import AsyncClient
    from eruca.contract.errors import ErucaError
    from eruca.contract.policies import AccessStatus

_ANSWER_SECONDS: Final = 5.0


class KeyUses(NamedTuple):
    """The last uses, and where they come from.

    Attributes:
        last_used_at: By key, the latest time that a service knows; without a key: none knows any.
        since: The latest start of these services: uses before it may be unknown.
        asked: URLs of the services that have answered.
        silent: Errors of the others, by URL.
    """

    last_used_at: dict[str, datetime]
    since: datetime | None
    asked: list[str]
    silent: dict[str, ErucaError]


async def key_uses(client: AsyncClient) -> KeyUses:
    """Ask every service that the client finds when it last admitted a request by each key."""
    from eruca.aio.cluster.requests import ask
    from eruca.contract.errors import ErucaError
    from eruca.contract.policies import AccessStatus

    async def status_of(url: str) -> AccessStatus | ErucaError:
        try:
            return await ask(
                AccessStatus,
                client.context.transport,
                "GET",
                url,
                "/v1/access",
                timeout=_ANSWER_SECONDS,
            )
        except ErucaError as error:
            return error

    urls = await _urls(client)
    answers = await asyncio.gather(*map(status_of, urls))
    pairs = list(zip(urls, answers, strict=True))
    statuses = {url: one for url, one in pairs if not isinstance(one, ErucaError)}
    silent = {url: one for url, one in pairs if isinstance(one, ErucaError)}
    return KeyUses(
        _latest(statuses.values()),
        max((status.started_at for status in statuses.values()), default=None),
        list(statuses),
        silent,
    )


def _latest(statuses: Iterable[AccessStatus]) -> dict[str, datetime]:
    found: dict[str, datetime] = {}
    for status in statuses:
        for key in status.keys or ():
            if key.last_used_at is not None:
                found[key.id] = max(key.last_used_at, found.get(key.id, key.last_used_at))
    return found


async def _urls(client: AsyncClient) -> list[str]:
    """Return the URLs of all services: as name servers know them, or as variables say."""
    from eruca.aio.cluster.instances import found_instances
    from eruca.contract.errors import NoRouteError
    from eruca.core.routing.route_table import address_for
    from eruca.core.routing.services import CONTROLLER, QUERY_SERVICE, TXN_CHECKER

    settings = client.settings
    urls = [*client.context.name_servers.urls]
    for group in await client.admin.brokers():
        for broker in group.brokers:
            urls.append(address_for(broker.urls, settings.network))
    for service in (QUERY_SERVICE, TXN_CHECKER, CONTROLLER):
        try:
            urls += service.given(os.environ) or await found_instances(
                service, client.context.name_servers, timeout=settings.timeout_seconds
            )
        except NoRouteError:
            continue  # there is none
    return list(dict.fromkeys(urls))
