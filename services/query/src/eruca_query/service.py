"""The parts of a query service, wired up: made by :mod:`eruca_query.app`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from eruca import AsyncClient
from eruca_postgres.broker_shares import BrokerShares
from eruca_postgres.database import Database
from eruca_query.projection.broker_work import FollowedBroker
from eruca_query.projection.message_projection import ProjectionCounts
from eruca_query.projection.upkeep import Upkeep
from eruca_query.searching.message_pages import MessagePages
from eruca_query.searching.message_search import MessageSearch
from eruca_query.searching.timelines import Timelines
from eruca_query.searching.topic_holders import TopicHolders


@dataclass(frozen=True, slots=True)
class QueryService:
    """Everything that answers requests and follows logs."""

    name: str
    started_at: datetime
    database: Database
    client: AsyncClient  # of the cluster
    shares: BrokerShares
    counts: ProjectionCounts
    upkeep: Upkeep
    search: MessageSearch
    pages: MessagePages
    timelines: Timelines
    holders: TopicHolders

    def work(self) -> dict[str, FollowedBroker]:
        """Return what is followed now, by broker."""
        return {
            name: work
            for name, work in self.shares.work.items()
            if isinstance(work, FollowedBroker)
        }

    def faults(self) -> dict[str, str]:
        """Return what cannot be followed just now, and why."""
        faults = {name: work.fault for name, work in self.work().items()}
        faults["name servers"] = self.shares.name_server_fault
        return {name: fault for name, fault in faults.items() if fault is not None}
