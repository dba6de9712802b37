"""Find the cluster's services for the docs explorer.

Each page lists them again. A name server that does not answer costs the page a moment and a note,
but never the page: the known services are still shown.
"""

from __future__ import annotations

import asyncio
from typing import Final

from eruca import AsyncClient
from eruca.contract.errors import ErucaError
from eruca.contract.names import CHECKERS_NAMESPACE, CONTROLLERS_NAMESPACE
from eruca.contract.routes import BrokerGroup
from eruca_chassis.explorer.routes import ExploredServices
from eruca_query.explorer.choice import services_to_explore

LISTING_SECONDS: Final = 3.0  # for all requests together; a person waits for the page


async def list_services(client: AsyncClient) -> ExploredServices:
    """Return the name servers of *client*, and every service that they know."""
    brokers: list[BrokerGroup] = []
    checkers: dict[str, str] = {}
    controllers: dict[str, str] = {}
    missing: list[str] = []
    try:
        async with asyncio.timeout(LISTING_SECONDS):
            brokers = await client.admin.brokers()
            checkers = await client.admin.list_kv(CHECKERS_NAMESPACE)
            controllers = await client.admin.list_kv(CONTROLLERS_NAMESPACE)
    except (ErucaError, TimeoutError) as error:
        reason = error.detail if isinstance(error, ErucaError) else "none answered in time"
        missing = [f"No name server lists the brokers and transaction checkers: {reason}."]
    return services_to_explore(
        brokers=brokers,
        namesrv_urls=client.settings.namesrv_urls,
        checkers=checkers,
        controllers=controllers,
        network=client.settings.network,
        missing=missing,
    )
