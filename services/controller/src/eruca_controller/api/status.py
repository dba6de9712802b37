"""The controller's own status."""

from __future__ import annotations

from eruca.contract.access import Right
from eruca.contract.status import ControllerStatus
from eruca_access.needs import to
from eruca_chassis.documents.openapi import answer
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_chassis.versions import version_of
from eruca_controller.api import examples
from eruca_controller.arbiter import Arbiter
from eruca_controller.settings import ControllerSettings

router = Router(prefix="/v1", tags=["status"])


@router.get(
    "/status",
    operation_id="getStatus",
    needs=to(Right.QUERY, cluster=True),
    summary="Get the controller's version, store and counts",
    responses=answer(examples.STATUS),
)
async def get_status(
    arbiter: Part[Arbiter], settings: Part[ControllerSettings]
) -> ControllerStatus:
    """Return the version, the start time, the kind of the store and the counts of this process."""
    return ControllerStatus(
        version=version_of("eruca-controller"),
        started_at=arbiter.started_at,
        store=settings.store,
        changes=sum(arbiter.counts.changes.values()),
        held_requests=len(arbiter.held),
        held_requests_max=arbiter.held.maximum,
    )
