"""The name server's own status."""

from __future__ import annotations

from eruca.contract.access import Right
from eruca.contract.status import NamesrvStatus
from eruca_access.needs import to
from eruca_chassis.documents.openapi import answer
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_chassis.versions import version_of
from eruca_namesrv.api import examples
from eruca_namesrv.name_server import NameServer

router = Router(prefix="/v1", tags=["status"])


@router.get(
    "/status",
    operation_id="getStatus",
    needs=to(Right.QUERY, cluster=True),
    summary="Get the name server's version and counts",
    responses=answer(examples.STATUS),
)
async def get_status(names: Part[NameServer]) -> NamesrvStatus:
    """Return the version, the start time and the counts of brokers, topics and held requests."""
    names.expire()
    return NamesrvStatus(
        version=version_of("eruca-namesrv"),
        started_at=names.started_at,
        settling_seconds=names.settling_seconds,
        brokers=names.table.broker_count,
        topics=len(names.table.topics()),
        held_requests=len(names.held),
        held_requests_max=names.held.maximum,
    )
