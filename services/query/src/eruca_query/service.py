"""The parts of a query service, as wired by :mod:`eruca_query.app`."""

from __future__ import annotations

from dataclasses import dataclass

from eruca_postgres.broker_shares import BrokerShares
from eruca_postgres.instance import Instance
from eruca_query.projection.broker_work import FollowedBroker
from eruca_query.projection.message_projection import ProjectionCounts
from eruca_query.projection.upkeep import Upkeep
from eruca_query.searching.message_pages import MessagePages
from eruca_query.searching.message_search import MessageSearch
from eruca_query.searching.timelines import Timelines
from eruca_query.searching.topic_holders import TopicHolders


@dataclass(frozen=True, slots=True)
class QueryService:
    """All parts that answer requests and follow logs."""

    instance: Instance
    shares: BrokerShares[FollowedBroker]
    counts: ProjectionCounts
    upkeep: Upkeep
    search: MessageSearch
    pages: MessagePages
    timelines: Timelines
    holders: TopicHolders
