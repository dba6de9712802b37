"""``eruca broker list``: every broker and its replicas, as name servers and replicas report."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from eruca.aio.cluster.requests import ask
from eruca.contract.errors import ErucaError
from eruca.contract.replication import ReplicationStatus
from eruca.core.routing.route_table import address_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eruca.aio.client import AsyncClient
    from eruca.contract.routes import BrokerAddress, BrokerGroup

HEADINGS: Final = ("broker", "replica", "role", "epoch", "end", "behind", "in sync", "problem")
_STATUS_SECONDS: Final = 2.0  # for the answer of a replica


class ListedReplica(NamedTuple):
    """A replica: its registration, and its own report, or the reason why there is none."""

    broker_name: str
    address: BrokerAddress
    found: ReplicationStatus | ErucaError

    @property
    def end(self) -> int | None:
        """Log offset after its last record; None: unknown."""
        return None if isinstance(self.found, ErucaError) else self.found.end


async def listed_replicas(
    client: AsyncClient, groups: Iterable[BrokerGroup]
) -> list[ListedReplica]:
    """Return the replicas of *groups*, which are asked all at once."""
    places = [(group.broker_name, address) for group in groups for address in group.brokers]
    found = await asyncio.gather(*(_status(client, address) for _, address in places))
    return [ListedReplica(*place, status) for place, status in zip(places, found, strict=True)]


def row_of(replica: ListedReplica, end: int | None) -> tuple[object, ...]:
    """Return a replica as a row of the table; *end* is that of its broker's log."""
    address, found = replica.address, replica.found
    return (
        replica.broker_name,
        address.replica_id,
        address.role,
        address.epoch or None,
        replica.end,
        None if end is None or replica.end is None else max(end - replica.end, 0),
        "no" if address.role == "learner" else "yes",
        _problem_of(replica.address, found),
    )


def rows_of(replicas: Sequence[ListedReplica]) -> list[tuple[object, ...]]:
    """Return the table's rows, by broker; a replica's distance is measured from its master's end.

    While there is no master, it is measured from the greatest end of the others.
    """
    ends: dict[str, int] = {}
    for replica in replicas:
        if replica.end is not None:
            known = ends.get(replica.broker_name, 0)
            is_master = replica.address.role == "master"
            ends[replica.broker_name] = replica.end if is_master else max(known, replica.end)
    return [row_of(replica, ends.get(replica.broker_name)) for replica in replicas]


def documents_of(replicas: Sequence[ListedReplica]) -> list[dict[str, object]]:
    """Return the rows for programs, with the same fields as the table."""
    names = [heading.replace(" ", "_") for heading in HEADINGS]
    documents = [dict(zip(names, row, strict=True)) for row in rows_of(replicas)]
    for replica, document in zip(replicas, documents, strict=True):
        document["in_sync"] = document["in_sync"] == "yes"
        document["problem"] = None if document["problem"] == "none" else document["problem"]
        document["urls"] = dict(replica.address.urls)
    return documents


def _problem_of(address: BrokerAddress, found: ReplicationStatus | ErucaError) -> str:
    if isinstance(found, ErucaError):
        return found.detail
    following = found.following
    if address.role == "learner" and following is not None and following.reason is not None:
        return following.reason
    return "none"


async def _status(client: AsyncClient, address: BrokerAddress) -> ReplicationStatus | ErucaError:
    url = address_for(address.urls, client.settings.network)
    try:
        return await ask(
            ReplicationStatus,
            client.context.transport,
            "GET",
            url,
            "/v1/replication/status",
            timeout=_STATUS_SECONDS,
        )
    except ErucaError as error:
        return error
