"""The brokers, their replicas, the name servers and the query service, as they are now."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from eruca.contract.broker_groups import BrokerGroupHistory, BrokerGroupView
from eruca.contract.errors import ErucaError
from eruca.contract.queries import QueryStatus
from eruca.contract.replication import ReplicationStatus
from eruca.contract.routes import BrokerAddress, BrokerGroup
from eruca.contract.status import BrokerStatus, NamesrvStatus
from eruca.core.routing.route_table import address_for
from eruca.services.cluster import parsed
from eruca_console.cluster.cache import Answered
from eruca_console.cluster.questions import Questions


class BrokerQuestions(Questions):
    """Questions about brokers, their replicas, and the services beside them."""

    async def status(self, group: BrokerGroup) -> Answered[BrokerStatus]:
        """Return the status of a broker's master.

        Raises:
            BrokerNotFoundError: None is registered.
        """
        url = self.master_url(group)
        return await self.cache.get(
            ("status", url), lambda: self.client.context.broker_api.status(url)
        )

    async def replica(self, address: BrokerAddress) -> Answered[ReplicationStatus]:
        """Return the part of a broker process in its group, by its own answer."""
        url = address_for(address.urls, self.client.settings.network)
        return await self.cache.get(("replica", url), lambda: self.replica_at(url))

    async def replica_at(self, url: str) -> ReplicationStatus:
        """Return the part of the broker process at *url*, as it is now."""
        return await self.asked(ReplicationStatus, url, "/v1/replication/status")

    async def broker_group(self, broker_name: str) -> Answered[BrokerGroupView]:
        """Return a broker's row at the arbiter.

        Raises:
            NoRouteError: No controller is known.
            NotFoundError: The controller has no such row: the broker is alone.
        """
        target = f"/v1/broker-groups/{quote(broker_name, safe='')}"

        async def ask() -> BrokerGroupView:
            answer, url = await self.controllers.request("GET", target)
            return parsed(BrokerGroupView, answer, url + target)

        return await self.cache.get(("broker group", broker_name), ask)

    async def broker_history(self, broker_name: str) -> Answered[BrokerGroupHistory]:
        """Return the last changes of a broker's row; raises as :meth:`broker_group`."""
        target = f"/v1/broker-groups/{quote(broker_name, safe='')}/history"

        async def ask() -> BrokerGroupHistory:
            answer, url = await self.controllers.request("GET", target)
            return parsed(BrokerGroupHistory, answer, url + target)

        return await self.cache.get(("broker history", broker_name), ask)

    async def name_servers(self) -> Answered[Mapping[str, NamesrvStatus | ErucaError]]:
        """Return the status of each name server by URL, or its error."""
        return await self.cache.get("name servers", self.client.admin.namesrv_statuses)

    async def query_status(self) -> Answered[QueryStatus]:
        """Return the status of a query service."""
        answered = await self.cache.get("query", self.client.query.status)
        self.known.learn(log.broker_name for log in answered.value.followed)
        return answered
